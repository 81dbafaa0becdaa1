/** A bug that the service must not have: one change of source text, and the test that it fails. */
export interface Mutation {
  readonly name: string;
  /** The path is from the root of the project. */
  readonly file: string;
  /** Occurs there exactly once. */
  readonly find: string;
  readonly replace: string;
  /** The test that must fail: its file, and its whole title. */
  readonly caughtBy: { readonly file: string; readonly test: string };
}

/**
 * Reads mutations that are written as changes are: of each its name, the lines that go (`-`), those
 * that come instead (`+`), and the test that fails then (`=`). They are in the source of the last
 * `file` before them, and the tests in the file, and the group, of the last `tests`.
 */
export function mutationsOf({ raw: [text = ''] }: TemplateStringsArray): Mutation[] {
  const mutations: Mutation[] = [];
  let [file, tests, group, name] = ['', '', '', ''];
  let goes: string[] = [];
  let comes: string[] = [];
  for (const line of text.split('\n').filter(Boolean)) {
    const [, mark, rest = ''] = /^(file|tests| {2}[-+=]) (.*)$/.exec(line) ?? [];
    if (mark === 'file') file = rest;
    else if (mark === 'tests') [tests = '', group = ''] = rest.split(/: (.*)/);
    else if (mark === '  -') goes.push(rest);
    else if (mark === '  +') comes.push(rest);
    else if (mark === undefined) [name, goes, comes] = [line, [], []];
    else {
      const caughtBy = { file: tests, test: group === '' ? rest : `${group} › ${rest}` };
      mutations.push({ name, file, find: goes.join('\n'), replace: comes.join('\n'), caughtBy });
    }
  }
  return mutations;
}

/** The source with the bug in it. Throws when the text to change does not occur exactly once. */
export function mutated({ name, file, find, replace }: Mutation, source: string): string {
  const parts = source.split(find);
  if (parts.length !== 2) {
    throw new Error(`${name}: "${find}" occurs ${parts.length - 1} times in ${file}, not once`);
  }
  return parts.join(replace);
}
