/** The paths and methods of a port, for the refusal of all others. */
import { nearName } from './near-names.ts';

export const OPENAPI_PATH = '/v1/openapi.json';

export class KnownPaths {
  readonly #methods = new Map<
    string,
    { readonly matches: RegExp; readonly methods: Set<string> }
  >();

  /** @param url as the router takes it: `:name` stands for one segment. */
  add(url: string, method: string | readonly string[]): void {
    let known = this.#methods.get(url);
    if (known === undefined) {
      const matches = new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
      known = { matches, methods: new Set() };
      this.#methods.set(url, known);
    }
    for (const one of [method].flat()) known.methods.add(one);
  }

  /** The methods for Allow. undefined: there is no such path. */
  methodsOf(path: string): readonly string[] | undefined {
    for (const { matches, methods } of this.#methods.values()) {
      if (matches.test(path)) return [...methods].sort();
    }
    return undefined;
  }

  /** The path that a wrong one probably means. Pages have no hint. */
  meantBy(path: string): string | undefined {
    const calls = [...this.#methods.keys()].filter(url => /^\/(?:v1|compat|mcp)[^:]*$/.test(url));
    // An address in a client's settings lacks its first part.
    const near = calls.find(url => url.endsWith(path)) ?? nearName(path, calls);
    if (near !== undefined) return `Did you mean ${near}?`;
    return calls.includes(OPENAPI_PATH) ? `GET ${OPENAPI_PATH} lists the paths.` : undefined;
  }
}
