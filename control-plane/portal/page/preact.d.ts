/**
 * The part of preact that pages use. tsconfig.json has it instead of preact's own types, which
 * declare a browser's globals in every file.
 */

/** Only `html` makes one. */
export interface VNode<P = object> {
  readonly type: string | ((props: P) => unknown);
  readonly props: P & { readonly children?: unknown };
  readonly key: unknown;
}

export function h(type: string, props: object | null, ...children: unknown[]): VNode;
