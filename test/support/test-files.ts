import { globSync, statSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
/** Two endings, as in `queue.test.ts` or `journey.browser.ts`. */
const TEST_FILE = /\.[a-z]+\.ts$/;

/** The user reads its message. */
export class NoTestsError extends Error {
  override name = 'NoTestsError';
}

/**
 * @param targets files or folders, from the project's root
 * @param kind which files of a folder: `.test.ts`, `.storm.ts` or `.mutants.ts`
 * @returns absolute paths, a folder's in reverse order
 * @throws NoTestsError a target is missing, or a folder has no such file
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

export function testsIn(folder: string, kind: string): string[] {
  const cwd = path.resolve(ROOT, folder);
  return globSync(`**/*.${kind}.ts`, { cwd, exclude: name => name === 'node_modules' })
    .map(name => path.join(cwd, name))
    .sort()
    .reverse();
}
