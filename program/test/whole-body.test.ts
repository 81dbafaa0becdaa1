import { Readable } from 'node:stream';
import test from 'ava';
import { SmallPiecesError } from '../piece-count.ts';
import { wholeBody } from '../whole-body.ts';

test('a body has at most so many bytes, and no more pieces than they are worth', async t => {
  const read = (pieces: number, bytesMax: number) =>
    wholeBody(Readable.from(Array(pieces).fill(Buffer.of(1))), bytesMax, () => new RangeError());
  t.is((await read(1026, 1026)).length, 1026);
  await t.throwsAsync(read(1026, 1025), { instanceOf: RangeError });
  await t.throwsAsync(read(1027, 2000), { instanceOf: SmallPiecesError, message: /over 1024, of/ });
});
