/** A bug that the service must not have: one change of source text, and the test that it fails. */
export interface Mutation {
  readonly name: string;
  /** From the root of the project. */
  readonly file: string;
  /** Occurs there exactly once. */
  readonly find: string;
  readonly replace: string;
  /** The test that must fail: its file, and its name behind those of the groups it is in. */
  readonly caughtBy: { readonly file: string; readonly test: string };
}

/** Names tests of a file, and of a group in it. */
export function inFile(file: string, group = ''): (test: string) => Mutation['caughtBy'] {
  return test => ({ file, test: `${group} ${test}`.trim() });
}

/** The source with the bug in it. Throws when the text to change does not occur exactly once. */
export function mutated({ name, file, find, replace }: Mutation, source: string): string {
  const parts = source.split(find);
  if (parts.length !== 2) {
    throw new Error(`${name}: "${find}" occurs ${parts.length - 1} times in ${file}, not once`);
  }
  return parts.join(replace);
}
