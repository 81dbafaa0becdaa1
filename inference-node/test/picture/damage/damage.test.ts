import test from 'ava';
import { createForms } from './forms.ts';
import { measureDamage, undetectedShare } from './measure-damage.ts';

/** `make soak ONLY=damage` takes 50 and 200. */
const CUTS = 6;
const FLIPS = 3;

test('no truncated file of any form is decoded to other pixels, and no corrupted PNG', async t => {
  const forms = await createForms();
  const report = await measureDamage(forms, { cuts: CUTS, flips: FLIPS, seed: 1, workers: 2 });
  t.log(JSON.stringify(report.forms.map(({ name, flips }) => [name, flips])));
  t.deepEqual(report.violations, []);
  t.true(report.forms.length >= 39);
  for (const { name, cuts } of report.forms) t.true(cuts.refused >= CUTS - 2, name);
  const png = report.forms.filter(({ format }) => format === 'png');
  t.is(undetectedShare(png), 0);
});
