import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import ava from 'ava';
import type { Answer, Order } from '../test/obedient-child.ts';
import { isAlive, until } from '../test/processes.ts';
import { Child, type ChildExit, findMember, killGroup, type SpawnChildOptions } from './child.ts';
import type { Frame } from './frames.ts';

const test = ava.serial;

/** Keeps the process alive while it waits only for a child. */
const holdingOn = setInterval(() => undefined, 60_000);
test.after.always(() => clearInterval(holdingOn));

const PROGRAM = path.join(import.meta.dirname, '../test/obedient-child.ts');

function startChild(options: Partial<SpawnChildOptions<Answer>> = {}) {
  const exited = Promise.withResolvers<ChildExit>();
  let answered: (frame: Frame<Answer>) => void;
  const child = new Child<Answer>({
    program: PROGRAM,
    env: {},
    onOutput: text => process.stderr.write(text),
    ...options,
    onFrame: frame => answered(frame),
    onExit: exited.resolve,
  });
  const ask = (order: Order, parts?: readonly Uint8Array[]) => {
    const answer = new Promise<Frame<Answer>>(resolve => {
      answered = resolve;
    });
    void child.send(order, parts);
    return answer;
  };
  return { child, exit: exited.promise, ask };
}

test('a child that answers garbage is killed, and the parent learns why', async t => {
  const { child, exit, ask } = startChild();
  await ask({ do: 'echo' });
  void child.send({ do: 'garbage' });
  const { error } = await exit;
  t.regex(String(error), /malformed frame/);
});

test('a child that is sent garbage says so and ends with a code of its own', async t => {
  const args = [PROGRAM, String(process.pid)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  (child.stdio[3] as Socket).write('this is no frame at all');
  let complaint = '';
  child.stderr?.setEncoding('utf8').on('data', text => {
    complaint += text;
  });
  const [code] = await once(child, 'close');
  t.is(code, 1);
  t.regex(complaint, /malformed frame/);
});

test('a child that dies of an exception reports its code', async t => {
  const { child, exit, ask } = startChild({ onOutput: () => undefined });
  await ask({ do: 'echo' });
  void child.send({ do: 'throw' });
  t.deepEqual(await exit, { code: 1, signal: null, error: undefined });
});

test('an orderly exit is reported as such', async t => {
  const { child, exit } = startChild();
  void child.send({ do: 'exit', code: 7 });
  t.deepEqual(await exit, { code: 7, signal: null, error: undefined });
  t.true(child.exited);
  await child.send({ do: 'echo' });
  child.kill();
});

test('a child blocked in native code is killed, with what it started', async t => {
  const { child, exit, ask } = startChild();
  const started = await ask({ do: 'start-a-process' });
  const grandchild = started.head.pid as number;
  await ask({ do: 'block' });
  child.kill();
  t.is((await exit).signal, 'SIGKILL');
  await until('the grandchild is gone', () => !isAlive(grandchild));
});

test('a child that does not die is reported as stuck, and later its end', async t => {
  const stuck = Promise.withResolvers<void>();
  const { child, exit, ask } = startChild({ onStuck: stuck.resolve, killWaitMaxMs: 100 });
  await ask({ do: 'echo' });
  const pid = child.pid as number;
  process.kill(pid, 'SIGSTOP');
  // The kernel has taken only a part of it.
  const sent = child.send({ do: 'echo' }, [Buffer.alloc(20_000_000)]);
  child.kill();
  await stuck.promise;
  t.deepEqual([child.stuck, child.exited], [true, false]);
  await sent;
  child.kill();
  killStopped(pid);
  t.is((await exit).signal, 'SIGKILL');
  t.deepEqual([child.stuck, child.exited], [false, true]);
});

test('a child is gone when what it started is: a codec that does not die counts', async t => {
  const stuck = Promise.withResolvers<void>();
  const { child, exit, ask } = startChild({ onStuck: stuck.resolve, killWaitMaxMs: 100 });
  const { head } = await ask({ do: 'start-a-process' });
  const grandchild = head.pid as number;
  process.kill(grandchild, 'SIGSTOP');
  child.kill();
  await stuck.promise;
  t.false(isAlive(child.pid as number));
  killStopped(grandchild);
  t.is((await exit).signal, 'SIGKILL');
});

test('a child that stands still as it ends is stuck too, though nobody killed it', async t => {
  const stuck = Promise.withResolvers<void>();
  const { child, exit, ask } = startChild({ onStuck: stuck.resolve, killWaitMaxMs: 100 });
  await ask({ do: 'echo' });
  void child.send({ do: 'close-and-stop' });
  await stuck.promise;
  killStopped(child.pid as number);
  t.is((await exit).signal, 'SIGKILL');
});

test('a process that a child started does not outlive the child’s crash', async t => {
  const { child, exit, ask } = startChild({ onOutput: () => undefined });
  const started = await ask({ do: 'start-a-process' });
  void child.send({ do: 'throw' });
  await exit;
  await t.notThrowsAsync(
    until('the grandchild is gone', () => !isAlive(started.head.pid as number)),
  );
});

// "At once" is before the child's guard runs.
for (const [when, waitMs] of [
  ['at once', 0],
  ['later', 700],
] as const) {
  test(`a blocked child and what it started end with a parent that is killed ${when}`, async t => {
    const program = path.join(import.meta.dirname, '../test/parent-of-blocked-child.ts');
    const parent = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = createInterface({ input: parent.stdout })[Symbol.asyncIterator]();
    const grandchild = Number((await lines.next()).value);
    const child = Number((await lines.next()).value);
    await delay(waitMs);
    t.true(isAlive(child) && isAlive(grandchild));
    parent.kill('SIGKILL');
    await once(parent, 'exit');
    await until('the child is gone', () => !isAlive(child));
    await until('the grandchild is gone', () => !isAlive(grandchild));
  });
}

test('a child sees the environment it was given and nothing else', async t => {
  const { child, exit, ask } = startChild({ env: { ONLY: 'this' } });
  const { head } = await ask({ do: 'environment' });
  t.deepEqual(head.environment, { ONLY: 'this' });
  child.kill();
  await exit;
});

test('all of standard error has come when the exit is reported', async t => {
  let complaint = '';
  const { child, exit, ask } = startChild({
    onOutput: text => {
      complaint += text;
    },
  });
  await ask({ do: 'complain', text: 'x'.repeat(60_000) });
  void child.send({ do: 'exit', code: 0 });
  await exit;
  t.is(complaint.length, 60_000);
});

const groups: number[] = [];

test.afterEach.always(() => {
  for (const group of groups.splice(0)) killGroup(group);
});

async function openGroup(): Promise<{ leader: ChildProcess; group: number; member: number }> {
  const program = 'sleep 600 & echo $!; read -r _';
  const leader = spawn('sh', ['-c', program], {
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const group = leader.pid as number;
  groups.push(group);
  const [pid] = await once(leader.stdout as NodeJS.ReadableStream, 'data');
  return { leader, group, member: Number(pid) };
}

test('a member that outlives its leader is found, until it is gone', async t => {
  const { leader, group, member } = await openGroup();
  t.true([group, member].includes(findMember(group, undefined) as number));
  leader.kill('SIGKILL');
  await once(leader, 'exit');
  t.is(findMember(group, undefined), member);
  t.is(findMember(group, group), member);
  t.is(findMember(group, process.pid), member);
  killGroup(group);
  await until('the group is gone', () => findMember(group, member) === undefined);
});
