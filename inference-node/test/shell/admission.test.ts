import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import {
  Admission,
  type AdmissionRequest,
  FILE_BYTES_MAX,
  type Permit,
} from '../../src/admission.ts';

const LIMITS = { imagesMax: 3, megapixelsMax: 60, megapixelsAloneMax: 100 };
const megapixels = (count: number) => ({ megapixels: count, fileBytes: 1000 });

function admit(admission: Admission, request: AdmissionRequest) {
  const outcome = admission.tryAdmit(request);
  assert.ok(outcome.kind === 'admitted');
  return outcome.permit;
}

function refusal(admission: Admission, request: AdmissionRequest) {
  const outcome = admission.tryAdmit(request);
  assert.ok(outcome.kind === 'refused');
  return outcome.error.code;
}

describe('Admission', () => {
  it('refuses when its places are taken', () => {
    const admission = new Admission(LIMITS);
    const permits: Permit[] = [1, 2, 3].map(count => admit(admission, megapixels(count)));
    assert.deepEqual(
      permits.map(({ queuePosition }) => queuePosition),
      [0, 1, 2],
    );
    assert.equal(refusal(admission, megapixels(1)), 'NODE_OVERLOADED');
    permits[1]?.release();
    assert.equal(admit(admission, megapixels(1)).queuePosition, 2);
  });

  it('refuses what does not fit beside the others', () => {
    const admission = new Admission(LIMITS);
    admit(admission, megapixels(50));
    assert.equal(admission.snapshot().megapixelsFree, 10);
    assert.equal(refusal(admission, megapixels(11)), 'NODE_SHORT_OF_MEMORY');
    admit(admission, megapixels(10));
  });

  it('takes an image over the whole budget while it is alone, and nothing beside it', () => {
    const admission = new Admission(LIMITS);
    assert.equal(admission.snapshot().megapixelsFree, 100);
    const large = admit(admission, megapixels(100));
    assert.equal(admission.snapshot().megapixelsFree, 0);
    assert.equal(refusal(admission, megapixels(1)), 'NODE_SHORT_OF_MEMORY');
    large.release();
    const small = admit(admission, megapixels(1));
    assert.equal(refusal(admission, megapixels(100)), 'NODE_SHORT_OF_MEMORY');
    small.release();
    admit(admission, megapixels(100));
  });

  it('sends an image that it can never hold to another node', () => {
    const admission = new Admission({ ...LIMITS, megapixelsAloneMax: 80 });
    assert.equal(refusal(admission, megapixels(81)), 'NODE_INCAPABLE');
    assert.equal(refusal(admission, megapixels(100)), 'NODE_INCAPABLE');
    admit(admission, megapixels(80));
  });

  it('bounds the bytes of the files together', () => {
    const admission = new Admission(LIMITS);
    admit(admission, { megapixels: 1, fileBytes: FILE_BYTES_MAX - 10 });
    assert.equal(refusal(admission, { megapixels: 1, fileBytes: 11 }), 'NODE_SHORT_OF_MEMORY');
    admit(admission, { megapixels: 1, fileBytes: 10 });
  });

  it('gives a permit back once, however often it is released', () => {
    const admission = new Admission(LIMITS);
    let changes = 0;
    const stop = admission.onChange(() => {
      changes += 1;
    });
    const kept = admit(admission, megapixels(7));
    const permit = admit(admission, megapixels(5));
    for (let i = 0; i < 3; i += 1) permit.release();
    assert.equal(changes, 3);
    const { images, megapixels: inUse, fileBytes } = admission.snapshot();
    assert.deepEqual([images, inUse, fileBytes], [1, 7, 1000]);
    stop();
    kept.release();
    assert.equal(changes, 3);
  });
});

test('with part of its GPUs out a node takes as many images less, and never none', () => {
  const admission = new Admission({ imagesMax: 8, megapixelsMax: 100, megapixelsAloneMax: 100 });
  let changes = 0;
  admission.onChange(() => changes++);
  admission.setImagesShare(0.25);
  const admit = () => admission.tryAdmit({ megapixels: 1, fileBytes: 1 }).kind;
  assert.deepEqual([admit(), admit(), admit()], ['admitted', 'admitted', 'refused']);
  admission.setImagesShare(0);
  assert.equal(admission.snapshot().imagesMax, 1);
  admission.setImagesShare(1);
  assert.equal(admission.snapshot().imagesMax, 8);
  assert.equal(admit(), 'admitted');
  assert.ok(changes >= 5);
});
