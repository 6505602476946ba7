/** Light or dark, as the system says or as the reader chose. */
const STORED = "wakeful.theme";
const NAMES = ["system", "light", "dark"] as const;

class Theme {
  name = $state<(typeof NAMES)[number]>(NAMES.find((each) => each === localStorage.getItem(STORED)) ?? "system");

  constructor() {
    this.#show();
  }

  /** Choose the next one. */
  next(): void {
    this.name = NAMES[(NAMES.indexOf(this.name) + 1) % NAMES.length]!;
    localStorage.setItem(STORED, this.name);
    this.#show();
  }

  #show(): void {
    if (this.name === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = this.name;
  }
}

export const theme = new Theme();
