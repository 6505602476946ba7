/** The pages. To add one, write a component in this folder and a line here. */
import type { Component } from "svelte";
import { route, match } from "../lib/router.svelte";
import { session } from "../lib/session.svelte";

/** What a page is given: the parameters of its path. */
export interface PageProps {
  params: Record<string, string>;
}

export interface PageEntry {
  /** The path below the console's base; `:name` is a parameter. */
  path: string;
  title: string;
  /** The scope without which the page isn't offered. */
  scope: string;
  /** Whether the menu has it. */
  inMenu?: boolean;
  load: () => Promise<{ default: Component<PageProps> }>;
}

export const PAGES: readonly PageEntry[] = [
  { path: "/", title: "Inbox", scope: "tickets:read", inMenu: true, load: () => import("./Inbox.svelte") },
  { path: "/tickets/:ticket", title: "Ticket", scope: "tickets:read", load: () => import("./Inbox.svelte") },
  { path: "/runs", title: "Runs", scope: "runs:read", inMenu: true, load: () => import("./Runs.svelte") },
  { path: "/runs/:run", title: "Run", scope: "runs:read", load: () => import("./Run.svelte") },

  { path: "/threads", title: "Threads", scope: "threads:read", inMenu: true, load: () => import("./Threads.svelte") },
  { path: "/threads/:thread", title: "Thread", scope: "threads:read", load: () => import("./Thread.svelte") },
  { path: "/playground", title: "Playground", scope: "runs:create", inMenu: true, load: () => import("./Playground.svelte") },
  { path: "/playground/:agent", title: "Playground", scope: "runs:create", load: () => import("./Playground.svelte") },
  { path: "/agents", title: "Agents", scope: "agents:read", inMenu: true, load: () => import("./Agents.svelte") },
  { path: "/agents/:agent", title: "Agent", scope: "agents:read", load: () => import("./Agent.svelte") },
  { path: "/workers", title: "Workers and queue", scope: "ops:read", inMenu: true, load: () => import("./Workers.svelte") },
  { path: "/mail", title: "Dead letters", scope: "ops:read", inMenu: true, load: () => import("./Mail.svelte") },
  { path: "/schedules", title: "Schedules", scope: "schedules:read", inMenu: true, load: () => import("./Schedules.svelte") },
  { path: "/usage", title: "Usage", scope: "usage:read", inMenu: true, load: () => import("./Usage.svelte") },
  { path: "/keys", title: "API keys", scope: "keys:admin", inMenu: true, load: () => import("./Keys.svelte") },
  { path: "/audit", title: "Audit", scope: "audit:read", inMenu: true, load: () => import("./Audit.svelte") },

  { path: "/components", title: "Components", scope: "public", load: () => import("./Components.svelte") },
];

/** The pages of the menu that the caller may see. */
export function menu(): PageEntry[] {
  return PAGES.filter((page) => page.inMenu && session.has(page.scope));
}

/** The page of the present path, with its parameters. */
export function present(): { page: PageEntry; params: Record<string, string> } | null {
  for (const page of PAGES) {
    const params = match(page.path, route.path);
    if (params) return { page, params };
  }
  return null;
}
