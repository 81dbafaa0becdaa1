import { createHash } from 'node:crypto';
import test from 'ava';
import {
  CHECK_BLOCKS,
  compareAnswers,
  drawCheckPicture,
  summariseAnswer,
} from '../../../src/models/preparing/check-picture.ts';

test('a matte that differs everywhere or in one block does not agree', t => {
  const stored = Array.from({ length: CHECK_BLOCKS }, (_, block) => block % 256);
  const shifted = stored.map(level => Math.min(255, level + 2));
  t.regex(compareAnswers(shifted, stored) ?? '', /differs by 2\.0 levels/);
  const holed = stored.with(200, 100);
  t.regex(compareAnswers(holed, stored) ?? '', /100 at most/);
  t.is(compareAnswers(stored.with(3, 9), stored), undefined);
});

test('the picture is the same on every machine', t => {
  const hash = createHash('sha256').update(drawCheckPicture(96, 64)).digest('hex');
  t.is(hash, 'ae622a3e62dba2f2596ff26ad9a664a9fa7b64b88f644d521c8a04c3be934142');
});

test('a block is the mean of its pixels at any size', t => {
  const alpha = Buffer.alloc(40 * 24, 10);
  alpha.fill(250, 0, 40 * 12);
  const blocks = summariseAnswer(alpha, 40, 24);
  t.is(blocks.length, CHECK_BLOCKS);
  t.deepEqual([blocks[0], blocks[CHECK_BLOCKS - 1]], [250, 10]);
});
