/** Runs the node's CLI to fetch and prepare the model, and shows its steps as a bar. */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { createInterface } from 'node:readline';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { type ChildEnd, endOf, killWithin, withinMs } from './child-end.ts';
import { NODE_CLI, type SupervisorConfig } from './config.ts';
import { modelEnv } from './stack-programs.ts';
import { requireDirectory } from './start-checks.ts';
import type { Terminal } from './terminal.ts';

/** A line of `models fetch --progress-json`. */
interface Step {
  readonly event: 'terms' | 'fetch' | 'prepare' | 'done';
  /** Only the event `terms` has it: the model and its terms. */
  readonly terms?: string;
  readonly model: string;
  readonly receivedBytes?: number;
  readonly totalBytes?: number;
  readonly step?: string;
  /** Of the model's input, in pixels. */
  readonly width?: number;
  readonly height?: number;
  /** A prepared file that is not used. */
  readonly path?: string;
  readonly reason?: string;
}

const LAST_WORDS_CHARACTERS_MAX = 4096;
/** From an interruption to SIGKILL. */
const INTERRUPTED_MAX_MS = 5000;

/** @returns the model and its terms, in one line @throws CommandError with the CLI's own message */
export async function fetchModels(
  config: SupervisorConfig,
  terminal: Terminal,
  signal: AbortSignal,
  how: readonly '--unmeasured'[] = [],
): Promise<string> {
  await requireDirectory(config.modelDir, 'MATTING_MODEL_DIR', constants.R_OK | constants.X_OK);
  // An earlier abort emits no event.
  signal.throwIfAborted();
  // A person must decide about a damaged file; it is not replaced silently.
  const args = [NODE_CLI, 'models', 'fetch', '--progress-json', '--refuse-altered', ...how];
  const child = spawn(process.execPath, args, {
    env: modelEnv(config, config.nodes[0]),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const end = endOf(child);
  const interrupted = Promise.withResolvers<void>();
  const interrupt = () => void endSoon(child, end, terminal).then(interrupted.resolve);
  signal.addEventListener('abort', interrupt, { once: true });
  let lastWords = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    lastWords = (lastWords + text).slice(-LAST_WORDS_CHARACTERS_MAX);
  });
  let shown = '';
  let terms = '';
  // The CLI checks the files twice, so it reports a discarded one twice.
  let discarded: string | undefined;
  createInterface(child.stdout).on('line', line => {
    const step = JSON.parse(line) as Step;
    if (step.terms !== undefined) terms = step.terms;
    if (step.step === 'discard' && step.path !== discarded) {
      discarded = step.path;
      terminal.line(`matting: skipping the prepared file ${step.path}: ${step.reason}`);
    }
    const text = activityOf(step);
    if (text === undefined) return;
    if (text !== shown) terminal.activity(text);
    shown = text;
    if (step.event === 'fetch') terminal.progress(text, step.receivedBytes ?? 0, step.totalBytes);
  });
  await Promise.race([end, interrupted.promise]);
  signal.removeEventListener('abort', interrupt);
  terminal.quiet();
  signal.throwIfAborted();
  const { code } = await end;
  if (code !== 0) {
    throw new CommandError(
      lastWords.trim() || `models fetch failed (exit code ${code})`,
      code ?? 1,
    );
  }
  // Warnings, such as a start without OpenVINO because PyPI is unreachable.
  for (const line of lastWords.split('\n')) if (line.startsWith('matting: ')) terminal.line(line);
  return terms;
}

/** Lets the child remove an incomplete file. Resolves when it is gone, or ignores SIGKILL. */
async function endSoon(
  child: ChildProcess,
  end: Promise<ChildEnd>,
  terminal: Terminal,
): Promise<void> {
  child.kill('SIGTERM');
  if ((await withinMs(INTERRUPTED_MAX_MS, end)) || (await killWithin(child, end))) return;
  terminal.line(`matting: process ${child.pid} does not end after SIGKILL; check this process`);
}

function activityOf({ event, model, step, width, height }: Step): string | undefined {
  if (event === 'fetch') return `Fetching ${model}`;
  if (step === 'runtimes') return `Choosing what runs ${model} faster`;
  return step === 'rewrite' ? `Preparing ${model} at ${width} x ${height} px` : undefined;
}
