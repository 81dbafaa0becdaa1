import assert from 'node:assert/strict';
import test from 'node:test';
import { loadManifest } from '../../src/models/manifest.ts';
import { QUALITIES } from '../../src/models/model-settings.ts';
import { loadPlanOutlines, parsePlanOutlines } from '../../src/models/plan.ts';

const subject = { model: 'isnet', inputSize: 1024, role: 'subject' };

for (const [what, plans, said] of [
  ['not JSON', '{', /plans\.json: not JSON/],
  ['a list', '[]', /must be an object/],
  ['no models', '{"fast": []}', /fast must be a list of 1 to 4 models/],
  ['an opinion first', JSON.stringify({ a: [{ ...subject, role: 'opinion' }] }), /a subject/],
  [
    'no such role',
    JSON.stringify({ a: [{ ...subject, role: 'judge' }] }),
    /a\[0\]\.role must be one of/,
  ],
  [
    'a path',
    JSON.stringify({ a: [{ ...subject, model: '../x' }] }),
    /a\[0\]\.model must be a string that matches/,
  ],
  [
    'a field too many',
    JSON.stringify({ a: [{ ...subject, weight: 1 }] }),
    /weight is not a known field/,
  ],
  [
    'too many models',
    JSON.stringify({ a: Array(5).fill(subject) }),
    /a must be a list of 1 to 4 models/,
  ],
] as const) {
  test(`a file of plans is refused: ${what}`, () => {
    assert.throws(() => parsePlanOutlines(plans, 'plans.json'), said);
  });
}

test('the product has the plans of MATTING_QUALITY, with sizes that their models list', async () => {
  const outlines = await loadPlanOutlines();
  assert.deepEqual(outlines.map(({ name }) => name).sort(), [...QUALITIES].sort());
  for (const { entries } of outlines) {
    for (const { model, inputSize } of entries) {
      const { inputSize: sizes } = await loadManifest(model);
      assert.ok(
        inputSize !== undefined && sizes.listed.includes(inputSize),
        `${model} ${inputSize}`,
      );
    }
  }
});
