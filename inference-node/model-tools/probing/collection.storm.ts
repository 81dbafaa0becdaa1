/** Probes every graph of a collection beside the checkout: minutes, of those that have no end. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { probeGraph } from './probe-graph.ts';

/** Graphs that makers' exporters wrote, and hostile ones. */
const SMALL = join(import.meta.dirname, '../../../../shared/research/models/small');
const REFUSED =
  /^(not-|external-|hostile-(?!deep|escape|name)|(float64|ir-99|one-channel|opset-27|optional-out|ort-format|out-classes4|out-nan|out-rgba|sequence-out|trimap|two-sizes-in|unknown-op)\.)/;

test.skipIf(isNotTested(!existsSync(SMALL) && `no ${SMALL}`))(
  'every graph of the collection works, or is refused by its cause',
  async t => {
    t.timeout(900_000);
    const files = (await readdir(SMALL)).filter(file => file.endsWith('.onnx')).values();
    const probeRest = async () => {
      for (const file of files) {
        const isRefused = REFUSED.test(file);
        // Some load or run for ever.
        const probed = probeGraph(join(SMALL, file), {}, isRefused ? { timeoutMs: 10_000 } : {});
        if (isRefused) await rejectsWith(t, probed, isModelError('prepare', /\w{3}/));
        else t.is((await probed).constant, file === 'out-constant.onnx', file);
      }
    };
    await Promise.all([probeRest(), probeRest(), probeRest()]);
  },
);
