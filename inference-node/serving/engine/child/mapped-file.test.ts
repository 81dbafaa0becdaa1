import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { isWithoutOpenvino } from '../../test/openvino.ts';
import { mapFile } from './mapped-file.ts';

// OpenVINO alone uses mapped files.
const test = isWithoutOpenvino ? ava.skip : ava;

function residentBytesOf(file: string): number {
  const [, mapping = ''] = readFileSync('/proc/self/smaps', 'utf8').split(`${file}\n`);
  return 1024 * Number(/^Rss:\s+(\d+) kB$/m.exec(mapping)?.[1]);
}

test('a file is mapped, let go, and read again', async t => {
  const file = path.join(await temporaryFolder(t), 'graph');
  const expected = Buffer.alloc(4 * 1024 ** 2, 'matting');
  await writeFile(file, expected);
  const mapped = mapFile(file);
  t.true(expected.equals(mapped.bytes));
  t.true(residentBytesOf(file) >= expected.length);
  mapped.letGo();
  t.is(residentBytesOf(file), 0);
  t.is(mapped.bytes.at(-1), expected.at(-1));
  t.true(residentBytesOf(file) > 0);
});

test('an empty, a missing and an unreadable file are refused by name', async t => {
  const folder = await temporaryFolder(t);
  const empty = path.join(folder, 'empty');
  await writeFile(empty, '');
  t.throws(() => mapFile(empty), { message: `${empty} cannot be mapped` });
  t.throws(() => mapFile(path.join(folder, 'missing')), { code: 'ENOENT' });
  t.throws(() => mapFile(folder), { message: `${folder} cannot be mapped` });
});
