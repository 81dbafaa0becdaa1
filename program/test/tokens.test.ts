/** The fleet's tokens in a file that changes at run time. */

import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { until } from '@matting/test-support/waiting.ts';
import test from 'ava';
import { EnvReader } from '../env.ts';
import { NodeTokens, readNodeTokens } from '../tokens.ts';

const OLD = 'the-old-token-of-the-fleet';
const NEXT = 'the-next-token-of-the-fleet';

test('node tokens › are followed in their file: the first is shown, each accepted, a broken file changes nothing', async t => {
  const file = path.join(await temporaryFolder(t), 'node-token');
  const messages: string[] = [];
  const say = (_fields: object, message: string) => messages.push(message);
  const tokens = new NodeTokens({ items: [OLD], file }, { info: say, warn: say }, 5);
  t.teardown(() => tokens.close());
  const untilLogged = (message: string) =>
    until(
      () => `the line "${message}", after: ${messages.join('; ')}`,
      () => messages.at(-1) === message,
    );
  await untilLogged('files not usable; kept');
  t.is(tokens.shown(), OLD);
  await writeFile(file, `${OLD}\n`);
  await untilLogged('files usable again');
  await writeFile(file, `${NEXT}\n${OLD}\n`);
  await untilLogged('token files changed');
  t.is(tokens.shown(), NEXT);
  t.deepEqual(tokens.accepted(), [NEXT, OLD]);
  await rm(file);
  await untilLogged('files not usable; kept');
  t.deepEqual(tokens.accepted(), [NEXT, OLD]);
  tokens.close();
  const lines = messages.length;
  await writeFile(file, OLD);
  await new Promise(resolve => setTimeout(resolve, 50));
  t.is(messages.length, lines);
  t.is(tokens.shown(), NEXT);
});

test('node tokens › a file that cannot be read is named with the reason of the system', async t => {
  const folder = await temporaryFolder(t);
  const problemOf = (file: string) => {
    const reader = new EnvReader({ MATTING_NODE_TOKEN_FILE: file });
    readNodeTokens(reader);
    return reader.problems
      .map(({ variable, expected }) => `${variable} must be ${expected}`)
      .join();
  };
  const missing = path.join(folder, 'none');
  t.regex(problemOf(missing), /MATTING_NODE_TOKEN_FILE must be a file that .* read \(ENOENT: /);
  t.false(problemOf(missing).includes(folder));
  t.regex(problemOf(folder), /\(EISDIR: it is a folder\)/);
  const short = path.join(folder, 'short');
  await writeFile(short, 'short\n');
  t.regex(problemOf(short), /at most 4 lines, each 16 to 256 printable/);
});
