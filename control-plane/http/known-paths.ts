import { nearName } from './near-names.ts';

export const OPENAPI_PATH = '/v1/openapi.json';

export class KnownPaths {
  readonly #methods = new Map<
    string,
    { readonly matches: RegExp; readonly methods: Set<string> }
  >();

  /** @param url in the router's form, in which `:name` stands for one segment */
  add(url: string, method: string | readonly string[]): void {
    let known = this.#methods.get(url);
    if (known === undefined) {
      const matches = new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
      known = { matches, methods: new Set() };
      this.#methods.set(url, known);
    }
    for (const one of [method].flat()) known.methods.add(one);
  }

  /** The methods for Allow. undefined: no such path. */
  methodsOf(path: string): readonly string[] | undefined {
    for (const { matches, methods } of this.#methods.values()) {
      if (matches.test(path)) return [...methods].sort();
    }
    return undefined;
  }

  /** Pages have no hint. */
  hintFor(path: string): string | undefined {
    const calls = [...this.#methods.keys()].filter(url => /^\/(?:v1|compat|mcp)[^:]*$/.test(url));
    // Clients are often configured without the first part of the path.
    const near = calls.find(url => url.endsWith(path)) ?? nearName(path, calls);
    if (near !== undefined) return `Did you mean ${near}?`;
    return calls.includes(OPENAPI_PATH) ? `GET ${OPENAPI_PATH} lists the paths.` : undefined;
  }
}
