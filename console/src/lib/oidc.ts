/** Login at an OpenID Connect issuer: authorization code with PKCE. The token is returned, and kept nowhere. */
export interface LoginSettings {
  issuer: string;
  client_id: string;
  scope: string;
  parameters: Record<string, string>;
}

interface Endpoints {
  authorization_endpoint: string;
  token_endpoint: string;
}

interface Attempt {
  state: string;
  verifier: string;
  /** The page to return to. */
  place: string;
}

const STORED = "wakeful.login";
const HOME = new URL("./", document.baseURI);

/** The login that the server offers; null if it offers none. */
export async function settings(): Promise<LoginSettings | null> {
  const response = await fetch(new URL("settings.json", HOME), { credentials: "omit", cache: "no-store" });
  return ((await response.json()) as { login: LoginSettings | null }).login;
}

/** Go to the issuer. The page is left. */
export async function depart(login: LoginSettings): Promise<void> {
  const attempt: Attempt = { state: random(), verifier: random(), place: location.pathname + location.search };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(attempt.verifier));
  const url = new URL((await endpoints(login)).authorization_endpoint);
  const query = {
    ...login.parameters,
    response_type: "code",
    client_id: login.client_id,
    redirect_uri: HOME.href,
    scope: login.scope,
    state: attempt.state,
    code_challenge: encode(new Uint8Array(digest)),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  sessionStorage.setItem(STORED, JSON.stringify(attempt));
  location.assign(url);
}

/** Whether the page was loaded by the issuer's answer. */
export function isReturn(): boolean {
  const query = new URLSearchParams(location.search);
  return sessionStorage.getItem(STORED) !== null && query.has("state") && (query.has("code") || query.has("error"));
}

/** Exchange the issuer's code for a token; the address is again that of the page that was left. */
export async function arrive(): Promise<string> {
  const query = new URLSearchParams(location.search);
  const attempt = JSON.parse(sessionStorage.getItem(STORED) ?? "{}") as Partial<Attempt>;
  sessionStorage.removeItem(STORED);
  const place = attempt.place?.startsWith(HOME.pathname) ? attempt.place : HOME.pathname;
  history.replaceState(null, "", place);
  dispatchEvent(new PopStateEvent("popstate"));
  if (!attempt.state || query.get("state") !== attempt.state) throw new Error("the answer of the login isn't to this tab's request; log in again");
  if (query.has("error")) throw new Error(`the issuer refused the login: ${query.get("error_description") || query.get("error")}`);
  const login = await settings();
  if (!login) throw new Error("the server offers no login any more");
  const response = await fetch((await endpoints(login)).token_endpoint, {
    method: "POST",
    credentials: "omit",
    body: new URLSearchParams({
      grant_type: "authorization_code",
      code: query.get("code") ?? "",
      client_id: login.client_id,
      redirect_uri: HOME.href,
      code_verifier: attempt.verifier ?? "",
    }),
  });
  const found = (await response.json()) as { access_token?: string; error_description?: string; error?: string };
  if (!response.ok || !found.access_token) throw new Error(`the issuer gave no token: ${found.error_description ?? found.error ?? response.status}`);
  return found.access_token;
}

async function endpoints(login: LoginSettings): Promise<Endpoints> {
  const url = `${login.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const response = await fetch(url, { credentials: "omit" });
  if (!response.ok) throw new Error(`the issuer's configuration can't be read: ${response.status} from ${url}`);
  return (await response.json()) as Endpoints;
}

const random = (): string => encode(crypto.getRandomValues(new Uint8Array(32)));

/** Base64 for URLs. */
function encode(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
