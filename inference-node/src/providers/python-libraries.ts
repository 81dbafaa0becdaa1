/** Folders of CUDA's libraries that Python packages brought (nvidia-cudnn-cu13 and its like). */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { ModelError } from '../models/model-error.ts';
import { foldersBelow } from './library-search.ts';

const run = promisify(execFile);
const ANSWER_MAX_MS = 20_000;
const PYTHON = ['python3', 'python'];
const ASK =
  'import site, sys; print("\\n".join([*site.getsitepackages(), site.getusersitepackages()]))';

/** None where there is no Python, or it has no such packages. */
export async function pythonLibraryFolders(
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (const python of PYTHON) {
    let said: string;
    try {
      said = (await run(python, ['-c', ASK], { env: { ...env }, timeout: ANSWER_MAX_MS })).stdout;
    } catch {
      // No Python, or one that does not answer: it brought nothing that could be used.
      continue;
    }
    for (const folder of said.split('\n').filter(Boolean)) {
      try {
        found.push(...(await foldersBelow(path.join(folder, 'nvidia'))));
      } catch (error) {
        // This user may not read it: engines, which run as one like it, may not either.
        if (!(error instanceof ModelError && error.kind === 'disk')) throw error;
      }
    }
  }
  return [...new Set(found)];
}
