/** Who the caller is, and what its credential permits. The credential is kept for this tab only. */
import { call, credential, textOf, type OperationName } from "../api/client";
import { feed } from "../api/feed.svelte";
import { OPERATIONS } from "../api/generated/operations";
import type { Me } from "../api/types";
import { arrive, isReturn } from "./oidc";

const STORED = "wakeful.key";

class Session {
  /** null until it is known, or if a login is needed. */
  me = $state.raw<Me | null>(null);
  needsLogin = $state(false);
  error = $state.raw<unknown>(null);
  /** Why a login failed. */
  problem = $state("");
  #token: string | null = sessionStorage.getItem(STORED);

  constructor() {
    credential.token = () => this.#token;
    credential.refused = () => this.#refuse();
  }

  /** Ask who the caller is. Without a credential that is the local caller of a server without authentication. */
  async open(): Promise<void> {
    this.error = null;
    try {
      if (isReturn()) this.#token = await arrive().catch((error: unknown) => ((this.problem = textOf(error)), null));
      this.me = await call("me.get");
      this.needsLogin = false;
      feed.start();
    } catch (error) {
      if (!this.needsLogin) this.error = error;
    }
  }

  /** Enter with an API key, which the tab keeps. Throws if it isn't valid. */
  async enter(key: string): Promise<void> {
    this.#token = key;
    this.me = await call("me.get");
    sessionStorage.setItem(STORED, key);
    this.needsLogin = false;
    feed.start();
  }

  /** Forget the credential. */
  leave(): void {
    this.#token = null;
    sessionStorage.removeItem(STORED);
    this.me = null;
    this.needsLogin = true;
    feed.stop();
  }

  /** Whether a credential was given that can be given up. */
  get canLeave(): boolean {
    return this.#token !== null;
  }

  /** Whether the caller has a scope, for any agent or for one. */
  has(scope: string, agent?: string): boolean {
    const held = this.me?.scopes ?? [];
    const noun = scope.split(":")[0];
    if (scope === "public" || scope === "authenticated") return true;
    if (held.some((each) => each === "*" || each === `${noun}:*` || each === scope)) return true;
    return held.some((each) => (agent === undefined ? each.startsWith(`${scope}:`) : each === `${scope}:${agent}`));
  }

  /** Whether the caller may call an operation. */
  may(name: OperationName, agent?: string): boolean {
    return this.has(OPERATIONS[name]![2], agent);
  }

  #refuse(): void {
    if (this.needsLogin) return;
    this.leave();
  }
}

export const session = new Session();
