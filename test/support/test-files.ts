/** Which test files a person means by files and folders of the project. */
import { globSync, statSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** Tests of every kind have two endings: `queue.test.ts`, `journey.browser.ts`. */
const TEST_FILE = /\.[a-z]+\.ts$/;

/** The person reads its text. */
export class NoTestsError extends Error {
  override name = 'NoTestsError';
}

/**
 * @param targets files, or folders for all their files of the kind, from the project's root
 * @param kind the files of a folder: those that end in `.test.ts`, `.storm.ts`, or `.mutants.ts`
 * @returns absolute paths, those of a folder from the last to the first
 * @throws NoTestsError a target is not there, or a folder has no such file
 */
export function testFilesOf(targets: readonly string[], kind: string): string[] {
  return targets.flatMap(target => filesOf(target, kind));
}

function filesOf(target: string, kind: string): string[] {
  const absolute = path.resolve(ROOT, target);
  const stats = statSync(absolute, { throwIfNoEntry: false });
  if (stats?.isFile() && TEST_FILE.test(absolute)) return [absolute];
  const found = stats?.isDirectory() ? testsIn(target, kind) : [];
  if (found.length > 0) return found;
  const what = stats === undefined ? 'is not a file or folder of the project' : 'has no tests';
  throw new NoTestsError(
    `${target} ${what}. Name a folder with tests, such as control-plane/core/ledger, or a file ` +
      `that ends in .${kind}.ts.`,
  );
}

/** Absolute paths of the tests below a folder, from the last to the first; perhaps none. */
export function testsIn(folder: string, kind: string): string[] {
  const cwd = path.resolve(ROOT, folder);
  return globSync(`**/*.${kind}.ts`, { cwd, exclude: name => name === 'node_modules' })
    .map(name => path.join(cwd, name))
    .sort()
    .reverse();
}
