import test from 'ava';
import { createForms } from '../../inference-node/serving/test/picture/damage/forms.ts';
import {
  measureDamage,
  undetectedShare,
} from '../../inference-node/serving/test/picture/damage/measure-damage.ts';
import { findTestedDecoder } from '../../inference-node/serving/test/picture/heif-decoders.ts';
import type { InputFormat } from '../../proto/contract/formats.ts';

const CUTS = 50;
const FLIPS = 200;

/** Shares of spoilt bytes unnoticed, measured (bench/MEASUREMENTS.md) and a little room. */
const UNDETECTED_MAX: Readonly<Record<InputFormat, number>> = {
  jpeg: 0.75,
  png: 0,
  webp: 0.75,
  avif: 0.1,
  jxl: 0.75,
  heic: 0.98,
};

test('damaged files of every form are refused, or come out whole', async t => {
  const heif = await findTestedDecoder();
  const forms = await createForms({ hasHeic: heif !== undefined });
  const options = { cuts: CUTS, flips: FLIPS, seed: 1, workers: 2, heif };
  const report = await measureDamage(forms, options);
  for (const { name, cuts, flips } of report.forms) {
    const shown = (counts: typeof cuts) =>
      `${counts.refused} refused, ${counts.same} whole, ${counts.different} other pixels`;
    t.log(`${name}: cut ${shown(cuts)}; spoilt ${shown(flips)}`);
  }
  t.deepEqual(report.violations, []);
  for (const [format, max] of Object.entries(UNDETECTED_MAX)) {
    const share = undetectedShare(report.forms.filter(form => form.format === format));
    t.log(`${format}: ${(100 * share).toFixed(1)} % of the damage unnoticed`);
    t.true(share <= max, `${format}: ${share}`);
  }
});
