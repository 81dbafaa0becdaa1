import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test, { type ExecutionContext } from 'ava';
import { readTensorHeads } from './tensor-heads.ts';

async function writeFields(t: ExecutionContext): Promise<string> {
  const file = join(await temporaryFolder(t), 'fields.onnx');
  await writeFile(file, Buffer.alloc(1_000_000, Buffer.from([0x08, 0x01])));
  return file;
}

test('a file that takes long to read leaves a signal its turn, and ends by it', async t => {
  const file = await writeFields(t);
  const told = new AbortController();
  setImmediate(() => told.abort(new Error('Ctrl-C')));
  await t.throwsAsync(readTensorHeads(file, told.signal), { message: 'Ctrl-C' });
});

test('a file is read to its end without a signal', async t => {
  const file = await writeFields(t);
  t.deepEqual(await readTensorHeads(file), { dataFiles: [], halves: false });
});
