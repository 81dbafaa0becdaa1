/** A guard of a bound, a fence, money or a URL, as the table names it: a function, and its test. */
import type { SourceFile } from 'typescript/unstable/ast';
import type { Change } from './change.ts';
import { declaredAs } from './functions.ts';
import { mutantsOf } from './mutator.ts';

export interface Guard {
  /** The path is from the root of the project. */
  readonly file: string;
  /** A function, method or constant there, as `outer.name` where others have its name, too. */
  readonly name: string;
  /** Text that occurs once in it: its mutants begin there; without one at the first operator. */
  readonly mark: string;
  /** The test that must fail: its file, and its whole title. */
  readonly tests: string;
  readonly title: string;
  /** A bug that no operator makes: lines that go, once in the function (`-`), and that come (`+`). */
  readonly byHand: string[];
}

/** So many mutants of a guard are tried before none is caught. */
const TRIES_MAX = 4;

/**
 * Reads lines `name | mark | title of the test` below `source by tests`, or `source by tests: group`
 * of titles. There is a mark for each guard, or none if the first mutant will do. Lines below one
 * that go (`-`) and that come instead (`+`) are its bug by hand.
 */
export function guardsOf({ raw: [text = ''] }: TemplateStringsArray): Guard[] {
  const guards: Guard[] = [];
  let [file, tests, group] = ['', '', ''];
  for (const line of text.split('\n').filter(Boolean)) {
    const [name = '', ...others] = line.split(' | ');
    if (/^ {2}[-+] /.test(line)) guards.at(-1)!.byHand.push(line);
    else if (others.length === 0) {
      [, file = '', tests = '', group = ''] = /^(\S+) by (\S+\.ts)(?:: (.*))?$/.exec(line) ?? [];
    } else {
      const title = group === '' ? `${others.pop()}` : `${group} › ${others.pop()}`;
      const marks = others.length === 0 ? [''] : others;
      guards.push(...marks.map(mark => ({ file, name, mark, tests, title, byHand: [] })));
    }
  }
  return guards;
}

/** The guard's mutants, in the order in which they are tried. Throws if the source has it no more. */
export function changesOf(guard: Guard, trees: ReadonlyMap<string, SourceFile>): Change[] {
  const { file, name, mark, byHand } = guard;
  const tree = trees.get(file)!;
  const [scope, ...others] = declaredAs(name, tree);
  if (scope === undefined || others.length > 0) throw new Error(`${file} has not one ${name}`);
  const at = (text: string) => {
    const parts = tree.text.slice(scope.pos, scope.end).split(text);
    if (parts.length === 2) return scope.pos + parts[0]!.length;
    throw new Error(`${name} of ${file} has "${text}" ${parts.length - 1} times, not once`);
  };
  if (byHand.length > 0) {
    const lines = (sign: string) =>
      byHand.filter(line => line[2] === sign).map(line => line.slice(4));
    const goes = lines('-').join('\n');
    return [{ start: at(goes), end: at(goes) + goes.length, text: lines('+').join('\n') }];
  }
  const [from, end] = mark === '' ? [scope.pos, scope.end] : [at(mark), at(mark) + mark.length];
  const mutants = mutantsOf(tree, scope).filter(one => one.at >= from && one.at < end);
  if (mutants.length > 0) return mutants.slice(0, TRIES_MAX);
  throw new Error(`no operator makes a mutant at "${mark}" in ${name} of ${file}`);
}
