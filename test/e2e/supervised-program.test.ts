/** The supervisor and programs that do not end: nothing is waited for without a bound. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava, { type ExecutionContext } from 'ava';
import { type Patience, SupervisedProgram } from '../../bin/supervised-program.ts';
import { at } from '../support/at.ts';
import { until } from '../support/running-service.ts';
import { killStopped } from '../support/stopped-cannot-be-killed.ts';

const test = ava.serial;

const UNTIL = { timeoutMs: 60_000 };
const IMPATIENT: Patience = { stopMs: 100, hurriedStopMs: 100, killMs: 100 };
/** Says that it is there, then ends when it is told to. */
const OBEDIENT = `
  process.stdout.write('up\\n');
  setInterval(() => undefined, 1000);
`;

async function start(context: ExecutionContext, source: string, patience?: Patience) {
  const directory = await mkdtemp(path.join(tmpdir(), 'supervised-'));
  const main = path.join(directory, 'main.mjs');
  const logFile = path.join(directory, 'main.log');
  await writeFile(main, source);
  const said: string[] = [];
  const say = (line: string) => void said.push(line);
  const env = { PATH: process.env.PATH ?? '' };
  const program = new SupervisedProgram({
    ...{ name: 'program', main, env, logFile, say },
    ...(patience === undefined ? {} : { patience }),
  });
  const pids = new Set<number>();
  context.teardown(async () => {
    for (const pid of [...pids, program.pid ?? 0]) if (pid > 0) killStopped(pid);
    await rm(directory, { recursive: true });
  });
  const log = () => readFile(logFile, 'utf8');
  await until(async () => /up/.test(await log()), { ...UNTIL, what: 'it runs' });
  const stop = () => {
    const pid = program.pid as number;
    pids.add(pid);
    process.kill(pid, 'SIGSTOP');
    return pid;
  };
  return { program, said, log, stop, pids };
}

test('a program that does not die is left behind, by name', async t => {
  const { program, said, stop } = await start(t, OBEDIENT, IMPATIENT);
  const pid = stop();
  await program.stop();
  t.deepEqual(said, [
    'the program does not end: killed',
    `the program (process ${pid}) was killed and does not die: it is left behind`,
  ]);
});

test('hurried, a stop that would have waited ends too', async t => {
  const patience = { ...IMPATIENT, stopMs: 3_600_000 };
  const { program, said, stop } = await start(t, OBEDIENT, patience);
  stop();
  const stopped = program.stop();
  await program.hurry();
  await stopped;
  t.regex(said.at(-1) ?? '', /does not die: it is left behind$/);
});

test('what a program leaves behind does not hide its end: it is started again', async t => {
  // As an engine that does not die, it holds the pipe of the program's standard error.
  const source = `
    import { spawn } from 'node:child_process';
    import { existsSync, writeFileSync } from 'node:fs';
    const marker = new URL('./second', import.meta.url);
    process.stdout.write('up\\n');
    if (existsSync(marker)) setInterval(() => undefined, 1000);
    else {
      writeFileSync(marker, '');
      const options = { detached: true, stdio: ['ignore', 'ignore', 'inherit'] };
      const left = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], options);
      process.on('SIGUSR2', () => process.exit(3));
      process.stdout.write('left ' + left.pid + '\\n');
    }
  `;
  const { program, said, log, pids } = await start(t, source, IMPATIENT);
  await until(async () => /left \d+/.test(await log()), { ...UNTIL, what: 'it left one' });
  pids.add(Number(/left (\d+)/.exec(await log())?.[1]));
  program.keepUp();
  const before = program.pid as number;
  process.kill(before, 'SIGUSR2');
  await until(() => program.pid !== before, { ...UNTIL, what: 'it is started again' });
  t.regex(at(said, 0), /^the program ended \(exit code 3\), starting it again$/);
  await program.stop();
});
