import { MetricSet } from '@matting/program/metric-set.ts';
import ava from 'ava';
import { countSubmitted, waitingMegapixels } from './work-by-model.ts';

const OFFERED = ['fine', 'fast'];
const photo = (model: string | null) => ({ model, finishing: null, input: null });

ava(
  'jobs count as they are submitted › by their model, as four megapixels before a download',
  async t => {
    const metrics = new MetricSet();
    const count = countSubmitted(metrics, OFFERED);
    const shown = async (model: string) => {
      const { values } = (await metrics.registry
        .getSingleMetric('matting_control_submitted_megapixels_total')
        ?.get()) ?? { values: [] };
      return values.find(({ labels }) => labels.model === model)?.value;
    };
    t.deepEqual([await shown(''), await shown('fine'), await shown('fast')], [0, 0, 0]);
    count(photo(null));
    count(photo('fine'));
    count(photo('fine'));
    count(photo('of nobody'));
    t.deepEqual([await shown(''), await shown('fine'), await shown('fast')], [8, 8, 0]);
    t.is(await shown('of nobody'), undefined);
  },
);

ava('jobs that wait have a value for every model that is offered, and for no other', t => {
  const byModel = new Map([
    [null, 3],
    ['fast', 5],
    ['of nobody', 7],
  ]);
  t.deepEqual(waitingMegapixels({ byModel }, OFFERED), [
    [10, { model: '' }],
    [0, { model: 'fine' }],
    [5, { model: 'fast' }],
  ]);
});
