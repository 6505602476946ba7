/** A tree of runs as rows: runs, their steps and calls, with the runs that calls started below them. */
import type { Call, Run, RunTree } from "../api/types";

export interface Row {
  key: string;
  kind: "run" | "step" | "call";
  depth: number;
  run: Run;
  call?: Call;
  step?: number;
  /** The number of rows directly below. */
  children: number;
  isFolded: boolean;
}

export interface View {
  calls: ReadonlyMap<string, readonly Call[]>;
  /** Whether a row is folded; `undefined` leaves that to its depth. */
  folded: ReadonlyMap<string, boolean>;
  search: string;
  failedOnly: boolean;
}

interface Node extends Omit<Row, "children" | "isFolded"> {
  below: Node[];
}

/** The rows that are shown. A search or `failedOnly` unfolds what leads to a match, and hides the rest. */
export function rowsOf(tree: RunTree, view: View): Row[] {
  const found: Row[] = [];
  const isFiltered = view.search !== "" || view.failedOnly;
  const root = nodeOf(tree, 0, view);
  const matching = isFiltered ? new Set<Node>() : null;
  if (matching) mark(root, view, matching);
  const visit = (node: Node): void => {
    if (matching && !matching.has(node)) return;
    const isFolded = !isFiltered && node.below.length > 0 && (view.folded.get(node.key) ?? node.depth > 3);
    const { below, ...row } = node;
    found.push({ ...row, children: below.length, isFolded });
    if (!isFolded) below.forEach(visit);
  };
  visit(root);
  return found;
}

/** All runs of a tree. */
export function runsOf(tree: RunTree): Run[] {
  return [tree.run, ...(tree.children ?? []).flatMap(runsOf)];
}

export const hasFailed = (run: Run): boolean => run.outcome?.termination.type === "error";
export const callFailed = (call: Call): boolean => call.outcome === "error" || call.outcome === "unknown" || call.outcome === "blocked";

function nodeOf(tree: RunTree, depth: number, view: View): Node {
  const { run } = tree;
  const id = run.identity.run_id;
  const node: Node = { key: id, kind: "run", depth, run, below: [] };
  const children = [...(tree.children ?? [])];
  const calls = view.calls.get(id) ?? [];
  const steps = new Map<number, Node>();
  for (const call of calls) {
    let step = steps.get(call.step);
    if (!step) {
      step = { key: `${id}.${call.step}`, kind: "step", depth: depth + 1, run, step: call.step, below: [] };
      steps.set(call.step, step);
      node.below.push(step);
    }
    const below = children.filter((each) => each.run.identity.parent_call_id === call.id);
    for (const each of below) children.splice(children.indexOf(each), 1);
    step.below.push({ key: call.id, kind: "call", depth: depth + 2, run, call, below: below.map((each) => nodeOf(each, depth + 3, view)) });
  }
  node.below.push(...children.map((each) => nodeOf(each, depth + 1, view)));
  return node;
}

/** Mark the nodes that match, with those above them. */
function mark(node: Node, view: View, matching: Set<Node>): boolean {
  let isShown = matches(node, view);
  for (const each of node.below) isShown = mark(each, view, matching) || isShown;
  if (isShown) matching.add(node);
  return isShown;
}

function matches({ kind, run, call }: Node, view: View): boolean {
  if (kind === "step") return false;
  if (view.failedOnly && !(call ? callFailed(call) : hasFailed(run))) return false;
  if (!view.search) return true;
  const text = call ? `${call.name} ${JSON.stringify(call.arguments)} ${call.id}` : `${run.agent_id} ${run.identity.run_id}`;
  return text.toLowerCase().includes(view.search.toLowerCase());
}
