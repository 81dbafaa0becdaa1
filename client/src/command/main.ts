/** Runs `matting-remove` of the package, and `matting remove` of a checkout. */
import { readFileSync } from 'node:fs';
import { CommandError, misuse } from './command-error.ts';
import { helpOf, parseCommand, readRemoveOptions } from './options.ts';
import { shown } from './progress.ts';
import { remove } from './remove.ts';
import { removeUrls } from './remove-urls.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Terminals and npm send a signal twice. */
const SAME_SIGNAL_MS = 1000;
const INTERRUPTED_EXIT_CODE = 130;
const SOFTWARE_EXIT_CODE = 70;

/** @returns the exit code; errors were printed */
export async function main(args: readonly string[], name = 'matting-remove'): Promise<number> {
  const draining = new AbortController();
  const hurrying = new AbortController();
  let lastMs: number | undefined;
  const onSignal = () => {
    const nowMs = performance.now();
    if (lastMs === undefined) draining.abort();
    else if (nowMs - lastMs >= SAME_SIGNAL_MS) hurrying.abort();
    lastMs = nowMs;
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  try {
    const { files, given } = parseCommand(args);
    const answer = given.help ? helpOf(name) : given.version ? versionOfPackage() : undefined;
    if (answer !== undefined) {
      process.stdout.write(`${answer}\n`);
      return 0;
    }
    if (files.length === 0 && given.urls === undefined)
      throw misuse(`no picture is named; see ${name} --help`);
    const endings = { draining: draining.signal, hurrying: hurrying.signal };
    const options = await readRemoveOptions(files, given);
    const { urls, to = '' } = options;
    if (urls === undefined) await remove(options, endings);
    else await removeUrls({ ...options, urls, to }, endings);
    return 0;
  } catch (error) {
    return draining.signal.aborted ? INTERRUPTED_EXIT_CODE : explain(error);
  } finally {
    for (const signal of SIGNALS) process.off(signal, onSignal);
  }
}

/**
 * Reads the built package's package.json, two folders up. In a checkout that file has no version,
 * so this reads the project's, three folders up.
 */
function versionOfPackage(): string {
  const versionAt = (relativeUrl: string): string | undefined =>
    JSON.parse(readFileSync(new URL(relativeUrl, import.meta.url), 'utf8')).version;
  return versionAt('../../package.json') ?? versionAt('../../../package.json') ?? '';
}

/** Prints a stack trace only for errors that the user cannot fix. */
function explain(error: unknown): number {
  const isSystems = error instanceof Error && 'syscall' in error;
  if (error instanceof CommandError || isSystems) {
    process.stderr.write(`matting: ${shown(error.message)}\n`);
    return error instanceof CommandError ? error.exitCode : 1;
  }
  console.error('matting: unexpected error:', error);
  return SOFTWARE_EXIT_CODE;
}
