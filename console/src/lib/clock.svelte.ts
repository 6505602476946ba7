/** The time, which relative times follow. */
class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => document.visibilityState === "visible" && (this.now = Date.now()), 1000);
  }
}

export const clock = new Clock();
