/** Files inside messages: which of them a browser may show, and how to save the others. */

/** Pictures without scripts. SVG is a document, and is never shown. */
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);
const SOUNDS = /^(audio|video)\/[\w.+-]+$/;

/** The data URL of a picture that is safe to show; null for anything else. */
export function pictureUrl(mediaType: string, data: string): string | null {
  return PICTURES.has(mediaType.toLowerCase()) ? `data:${mediaType.toLowerCase()};base64,${data}` : null;
}

/** The data URL of a recording; null for anything else. */
export function soundUrl(mediaType: string, data: string): string | null {
  return SOUNDS.test(mediaType.toLowerCase()) ? `data:${mediaType.toLowerCase()};base64,${data}` : null;
}

/** Save content as a file. Its type says nothing, so that no browser opens it. */
export function save(name: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.()\- ]+/g, "_").slice(0, 120) || "file";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Save base64 as a file. */
export function saveBase64(name: string, data: string): void {
  save(name, Uint8Array.from(atob(data), (each) => each.charCodeAt(0)));
}

/** A name for a file of a media type. */
export function fileName(mediaType: string): string {
  return `file.${mediaType.split(/[/+;]/)[1]?.replace(/\W/g, "") || "bin"}`;
}
