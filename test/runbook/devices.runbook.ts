/** The page about GPUs, on a stand-in of a host with two: nvidia-smi lists them, CUDA fails there. */
import assert from 'node:assert/strict';
import path from 'node:path';
import ava from 'ava';
import { createAnswering } from '../../inference-node/serving/engine/choice/answer-picture.ts';
import {
  type AnswerPicture,
  checkAnswer,
  drawCheckPicture,
  summariseAnswer,
} from '../../inference-node/serving/prepared/answer-check.ts';
import { runtimeVersion } from '../../inference-node/serving/providers/provider-files.ts';
import { type GpuHost, gpuFacts, openGpuHost } from '../../inference-node/serving/test/gpu-host.ts';
import { ROOT } from '../running-service.ts';
import { at } from '../support/at.ts';
import { buildPlan } from '../support/tiny-plan.ts';
import { Installation, pictureBase64 } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const HOOK = path.join(ROOT, 'inference-node/serving/test/gpu-host-hook.ts');
const GPUS = [gpuFacts('one', { index: 0 }), gpuFacts('two', { index: 1 })];
const [FALLS, STAYS] = GPUS.map(({ id }) => id);
/** As CUDA says it of a card that fell off the bus. */
const LAUNCH = 'CUDA failure 719: unspecified launch failure ; GPU=0 ; line=1';
const NO_DEVICE = 'CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; line=352';

const service = new Installation();
const procedure = proceduresOn(service, test);
let host: GpuHost;
const cleanups: (() => unknown)[] = [];
const node = () => at(service.nodes, 0);
const modelDir = () => path.join(host.folder, 'models');

test.before(async () => {
  host = await openGpuHost({ teardown: clean => void cleanups.push(clean) }, GPUS);
  await recordAnswer(modelDir());
});
service.use(test, () => ({
  nodeImports: [HOOK],
  nodeEnv: {
    MATTING_EXECUTION_PROVIDER: 'cuda',
    MATTING_ENGINES: '2',
    MATTING_PICTURE_WORKERS: '2',
    MATTING_MODEL_DIR: modelDir(),
    TEST_ENGINE_ENV: JSON.stringify(host.childEnv),
  },
}));
test.after.always(async () => {
  for (const clean of cleanups) await clean();
});

/** The tiny model is of no manifest: what GPUs answer is held against what the CPU does here. */
async function recordAnswer(cacheDir: string): Promise<void> {
  const { models } = await buildPlan({ cacheDir, provider: 'cuda' });
  const { model } = at(models, 0);
  const { name, driver } = gpuFacts('one');
  const machine = `${name}, driver ${driver}, cuda, ONNX Runtime ${runtimeVersion()}`;
  const { answer } = createAnswering({ childEnv: {}, threads: 1 });
  const onCpu: AnswerPicture = (_, rgb) => answer({ ...model, provider: 'cpu' }, rgb);
  const { inputWidth: width, inputHeight: height } = model;
  const matte = await onCpu(model, drawCheckPicture(width, height));
  const stored = async () => summariseAnswer(matte);
  assert.equal(await checkAnswer(model, stored, { answer: onCpu, machine }), undefined);
}

/** Some at once, so that either GPU gets one. */
async function requireSuccess(): Promise<void> {
  const image_base64 = await pictureBase64(64, 64, 1);
  await Promise.all(Array.from({ length: 3 }, () => service.cutOut({ image_base64 })));
}

const falls = () => host.fault(`run ${FALLS} ${LAUNCH}`, `load ${FALLS} ${NO_DEVICE}`);

procedure('MattingGpuOut', async (page, t) => {
  await falls();
  const [firing] = await page.fires(requireSuccess);
  t.is(firing?.gpu, FALLS);
  const { reason } = await node().line('GPU is out: its engines end', { gpu: FALLS });
  t.regex(String(reason), /no CUDA-capable device/);
  await node().line('GPU stays out', { gpu: FALLS });
  await host.fault();
  await page.isOver();
  await node().line('GPU is back', { gpu: FALLS });
  await requireSuccess();
  await falls();
  await page.fires(requireSuccess);
  await page.run('npm run matting -- nodes drain <id>', { id: node().id });
  await node().stop();
  node().start({ MATTING_GPU_DEVICES: String(STAYS) });
  await page.run('npm run matting -- nodes undrain <id>', { id: node().id });
  await page.isOver();
  await service.ready();
  await requireSuccess();
});
