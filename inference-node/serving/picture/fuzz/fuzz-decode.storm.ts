import ava from 'ava';
import { createForms } from '../../test/picture/damage/forms.ts';
import { measureDamage, undetectedShare } from '../../test/picture/damage/measure-damage.ts';
import { fuzzDecode } from '../../test/picture/fuzz/fuzz-decode.ts';
import { findTestedDecoder } from '../../test/picture/heif-decoders.ts';

const test = ava.serial;

const FILES = 130;

test('hostile files get an answer of the contract, within the budgets', async t => {
  const summary = await fuzzDecode({ count: FILES, seed: 2, workers: 2 });
  t.log(JSON.stringify(summary));
  t.deepEqual(summary.violations, []);
  t.true(summary.files >= FILES);
  // Mutants of a single kind would prove nothing.
  for (const answer of ['picture', 'PROCESSING_FAILED']) {
    t.true((summary.answers[answer] ?? 0) > 20, answer);
  }
  t.true((summary.answers.UNSUPPORTED_IMAGE_FORMAT ?? 0) > 0);
  t.true((summary.answers.IMAGE_RESOLUTION_TOO_LARGE ?? 0) > 0);
});

const CUTS = 3;
const FLIPS = 1;

test('no truncated file of any form is decoded to other pixels, and no corrupted PNG', async t => {
  const heif = await findTestedDecoder();
  const forms = await createForms({ hasHeic: heif !== undefined });
  const options = { cuts: CUTS, flips: FLIPS, seed: 1, workers: 2, heif };
  const report = await measureDamage(forms, options);
  t.log(JSON.stringify(report.forms.map(({ name, flips }) => [name, flips])));
  t.deepEqual(report.violations, []);
  t.true(report.forms.length >= 39);
  for (const { name, cuts } of report.forms) t.true(cuts.refused >= CUTS - 2, name);
  const png = report.forms.filter(({ format }) => format === 'png');
  t.is(undetectedShare(png), 0);
});
