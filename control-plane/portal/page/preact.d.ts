/**
 * The part of preact that pages use. tsconfig.json has this file instead of preact's own types, which
 * bring those of a browser into every file of the programs.
 */

/** A node of a page's tree; only `html` makes one. */
export interface VNode<P = object> {
  readonly type: string | ((props: P) => unknown);
  readonly props: P & { readonly children?: unknown };
  readonly key: unknown;
}

export function h(type: string, props: object | null, ...children: unknown[]): VNode;
