import assert from 'node:assert/strict';
import test from 'ava';
import { ContractError } from '#contract/errors.ts';
import { Admission, FILE_BYTES_MAX, type Permit } from '../../src/admission.ts';

const LIMITS = { imagesMax: 3, megapixelsMax: 60, megapixelsAloneMax: 100 };
const megapixels = (count: number) => ({ megapixels: count, fileBytes: 1000 });

function refusal(admission: Admission, request: Parameters<Admission['admit']>[0]) {
  try {
    admission.admit(request);
  } catch (error) {
    assert.ok(error instanceof ContractError);
    return error.code;
  }
  return assert.fail('it was admitted');
}

test('Admission › refuses when its places are taken', t => {
  const admission = new Admission(LIMITS);
  const permits: Permit[] = [1, 2, 3].map(count => admission.admit(megapixels(count)));
  t.deepEqual(
    permits.map(({ queuePosition }) => queuePosition),
    [0, 1, 2],
  );
  t.is(refusal(admission, megapixels(1)), 'NODE_OVERLOADED');
  permits[1]?.release();
  t.is(admission.admit(megapixels(1)).queuePosition, 2);
});

test('Admission › refuses what does not fit beside the others', t => {
  const admission = new Admission(LIMITS);
  admission.admit(megapixels(50));
  t.is(admission.snapshot().megapixelsFree, 10);
  t.is(refusal(admission, megapixels(11)), 'NODE_SHORT_OF_MEMORY');
  admission.admit(megapixels(10));
});

test('Admission › takes an image over the whole budget while it is alone, and nothing beside it', t => {
  const admission = new Admission(LIMITS);
  t.is(admission.snapshot().megapixelsFree, 100);
  const large = admission.admit(megapixels(100));
  t.is(admission.snapshot().megapixelsFree, 0);
  t.is(refusal(admission, megapixels(1)), 'NODE_SHORT_OF_MEMORY');
  large.release();
  const small = admission.admit(megapixels(1));
  t.is(refusal(admission, megapixels(100)), 'NODE_SHORT_OF_MEMORY');
  small.release();
  admission.admit(megapixels(100));
});

test('Admission › sends an image that it can never hold to another node', t => {
  const admission = new Admission({ ...LIMITS, megapixelsAloneMax: 80 });
  t.is(refusal(admission, megapixels(81)), 'NODE_INCAPABLE');
  t.is(refusal(admission, megapixels(100)), 'NODE_INCAPABLE');
  admission.admit(megapixels(80));
});

test('Admission › bounds the bytes of the files together', t => {
  const admission = new Admission(LIMITS);
  admission.admit({ megapixels: 1, fileBytes: FILE_BYTES_MAX - 10 });
  t.is(refusal(admission, { megapixels: 1, fileBytes: 11 }), 'NODE_SHORT_OF_MEMORY');
  admission.admit({ megapixels: 1, fileBytes: 10 });
});

test('Admission › gives a permit back once, however often it is released', t => {
  const admission = new Admission(LIMITS);
  let changes = 0;
  const stop = admission.onChange(() => {
    changes += 1;
  });
  const kept = admission.admit(megapixels(7));
  const permit = admission.admit(megapixels(5));
  for (let i = 0; i < 3; i += 1) permit.release();
  t.is(changes, 3);
  const { images, megapixels: inUse, fileBytes } = admission.snapshot();
  t.deepEqual([images, inUse, fileBytes], [1, 7, 1000]);
  stop();
  kept.release();
  t.is(changes, 3);
});

test('with part of its GPUs out a node takes as many images less, and never none', t => {
  const admission = new Admission({ imagesMax: 8, megapixelsMax: 100, megapixelsAloneMax: 100 });
  let changes = 0;
  admission.onChange(() => changes++);
  admission.setImagesShare(0.25);
  for (let image = 0; image < 2; image += 1) admission.admit(megapixels(1));
  t.is(refusal(admission, megapixels(1)), 'NODE_OVERLOADED');
  admission.setImagesShare(0);
  t.is(admission.snapshot().imagesMax, 1);
  admission.setImagesShare(1);
  t.is(admission.snapshot().imagesMax, 8);
  admission.admit(megapixels(1));
  t.true(changes >= 5);
});
