/**
 * The `matting` command: `up` and `cutout` run both programs, `remove` calls a service, and all
 * others run a program's own CLI. It imports neither program.
 */
import { spawn } from 'node:child_process';
import { existsSync, writeSync } from 'node:fs';
import { CONFIG_EXIT_CODE, ConfigError } from '@matting/program/config-error.ts';
import { SignalGate } from '@matting/program/signal-gate.ts';
import { Command, CommanderError } from 'commander';
import { CommandError } from 'matting-client/src/command/command-error.ts';
import { main as remove } from 'matting-client/src/command/main.ts';
import { CONTROL_PLANE_CLI, NODE_CLI } from './config.ts';
import { cutout } from './cutout.ts';
import { addFinishingOptions, type GivenFinishing } from './finishing-options.ts';
import type { Stack } from './stack.ts';
import { Terminal } from './terminal.ts';
import { up } from './up.ts';

/** Commands that a program's own CLI handles. */
const DELEGATED: ReadonlyMap<string, { readonly main: string; readonly about: string }> = new Map([
  ['accounts', { main: CONTROL_PLANE_CLI, about: 'create and list accounts' }],
  ['keys', { main: CONTROL_PLANE_CLI, about: 'create, revoke and list API keys' }],
  ['credits', { main: CONTROL_PLANE_CLI, about: 'grant, revoke, show and check credits' }],
  ['jobs', { main: CONTROL_PLANE_CLI, about: 'list, show and retry jobs' }],
  ['batches', { main: CONTROL_PLANE_CLI, about: 'cancel batches' }],
  ['mails', { main: CONTROL_PLANE_CLI, about: 'retry waiting mails' }],
  ['nodes', { main: CONTROL_PLANE_CLI, about: 'list and drain inference nodes' }],
  ['orders', { main: CONTROL_PLANE_CLI, about: 'list orders, record payments and refunds' }],
  ['storage', { main: CONTROL_PLANE_CLI, about: 'check, tidy and move the storage' }],
  ['webhooks', { main: CONTROL_PLANE_CLI, about: 'list, retry and receive notifications' }],
  ['migrate', { main: CONTROL_PLANE_CLI, about: 'bring the database up to date' }],
  ['doctor', { main: CONTROL_PLANE_CLI, about: 'check everything a control plane or node needs' }],
  ['backup', { main: CONTROL_PLANE_CLI, about: 'back up a running service' }],
  ['restore', { main: CONTROL_PLANE_CLI, about: 'restore and verify a backup' }],
  ['models', { main: NODE_CLI, about: 'add, list, check, fetch and prepare models' }],
  ['providers', { main: NODE_CLI, about: 'install, list and check GPU providers' }],
]);

/** EX_USAGE of sysexits.h. */
const USAGE_EXIT_CODE = 64;
/** EX_UNAVAILABLE: something is missing. */
const UNAVAILABLE_EXIT_CODE = 69;
/** Checks whether the parent process and the terminal still exist. */
const GONE_POLL_MS = 500;

/** From commander. */
interface CutoutCommand extends GivenFinishing {
  readonly out?: string;
  readonly model?: string;
  readonly failWithoutSubject?: boolean;
  readonly json?: boolean;
}

const terminal = new Terminal();
const ending = new AbortController();
const gate = new SignalGate();
let stack: Stack | undefined;

function onSignal(): void {
  const meaning = gate.read(performance.now());
  if (meaning === 'drain') ending.abort();
  if (meaning === 'hurry') void stack?.hurry();
}

function watchSignals(): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);
  if (process.stdout.isTTY) setInterval(endWithoutTerminal, GONE_POLL_MS).unref();
}

/**
 * A closed terminal signals only its session's leader, which may not pass it on: with `ssh -t host
 * make -C matting start` make waits for this process.
 */
function endWithoutTerminal(): void {
  try {
    writeSync(process.stdout.fd, '');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EIO') ending.abort();
  }
}

/** A killed make does not signal its children. */
function watchParent(): void {
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) ending.abort();
  }, GONE_POLL_MS).unref();
}

function keepStack(started: Stack): void {
  stack = started;
}

/** `doctor --node` runs the node's doctor. */
function mainOf(main: string, args: readonly string[]): string {
  return args[0] === 'doctor' && args.includes('--node') ? NODE_CLI : main;
}

/** A container image may have only one program. @throws CommandError */
function requirePrograms(...mains: readonly string[]): void {
  const missing = mains.find(main => !existsSync(main));
  if (missing === undefined) return;
  const name = missing === NODE_CLI ? 'inference node' : 'control plane';
  const image = missing === NODE_CLI ? 'matting-node' : 'matting-control-plane';
  const images = mains.length > 1 ? 'the image matting' : `the image matting or ${image}`;
  throw new CommandError(
    `this installation has no ${name}; run this in ${images}`,
    UNAVAILABLE_EXIT_CODE,
  );
}

async function handOn(main: string, args: readonly string[]): Promise<number> {
  requirePrograms(main);
  const child = spawn(process.execPath, [main, ...args], { stdio: 'inherit' });
  // The terminal sends Ctrl-C to both processes, and the CLI decides.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  const code = await new Promise<number | null>(resolve => child.once('close', resolve));
  return code ?? 1;
}

async function main(argv: readonly string[]): Promise<number> {
  // The program answers `help keys` like `keys --help`.
  const args = argv[0] === 'help' && argv[1] !== undefined ? [...argv.slice(1), '--help'] : argv;
  const handed = DELEGATED.get(args[0] ?? '');
  if (handed !== undefined) return handOn(mainOf(handed.main, args), args);
  if (args[0] === 'remove') return remove(args.slice(1), 'matting remove');
  const program = new Command('matting')
    .description('A self-hosted background-removal service')
    .exitOverride()
    .showHelpAfterError('Use --help to list the commands and options.')
    .configureOutput({
      outputError: (text, write) => write(text.replace(/^error: /, 'matting: ')),
    });
  program
    .command('up')
    .description('set up and run the service on this machine')
    .option('--end-with-parent', 'stop when the parent process stops')
    .action(async (options: { endWithParent?: boolean }) => {
      requirePrograms(CONTROL_PLANE_CLI, NODE_CLI);
      watchSignals();
      if (options.endWithParent) watchParent();
      await up(terminal, ending.signal, keepStack);
    });
  addFinishingOptions(program.command('cutout'))
    .description('cut out images with a temporary service')
    .argument('[image...]', 'JPEG, PNG, WebP, AVIF, HEIC or JPEG XL (default: the demo picture)')
    .option('--out <file>', 'result file; its extension sets the format')
    .option('--model <name>', "plan or model to use (default: the node's plan)")
    .option('--fail-without-subject', 'fail an image without a subject')
    .option('--json', 'print the results as JSON, and everything else to standard error')
    .action(async (images: string[], options: CutoutCommand) => {
      requirePrograms(CONTROL_PLANE_CLI, NODE_CLI);
      watchSignals();
      const shown = options.json ? new Terminal(process.stderr) : terminal;
      const { out, model, failWithoutSubject, json, ...finishing } = options;
      const wanted = { images, out, model, failWithoutSubject, finishing };
      const cutouts = await cutout(wanted, shown, ending.signal, keepStack);
      if (json) console.log(JSON.stringify({ cutouts }));
    });
  program.command('remove').description('cut out folders of images with a running service');
  for (const [name, { about }] of DELEGATED) {
    program.command(name).description(about);
  }
  await program.parseAsync(args, { from: 'user' });
  return 0;
}

/** A stack trace only for errors that the user cannot fix. */
function explain(error: unknown): number {
  terminal.quiet();
  if (ending.signal.aborted) return 130;
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
  if (error instanceof ConfigError) {
    console.error(`matting: ${error.message}`);
    return CONFIG_EXIT_CODE;
  }
  if (error instanceof CommandError) {
    console.error(
      error.message.startsWith('matting:') ? error.message : `matting: ${error.message}`,
    );
    return error.exitCode;
  }
  if (isSystemError(error)) {
    console.error(`matting: ${error.message}`);
    return 1;
  }
  console.error('matting: unexpected error:', error);
  return 70;
}

/** Such as missing rights or space. The messages name the file. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error && 'path' in error;
}

process.exitCode = await main(process.argv.slice(2)).catch(explain);
// Remaining handles (kept connections of fetch) must not hold the terminal.
process.exit();
