import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { type TrapKind, writeTrapModel } from '@matting/test-support/trap-model.ts';
import test, { type ExecutionContext } from 'ava';
import { LoadedModel, NoMatteError } from './loaded-model.ts';

const GREY = Buffer.alloc(3 * 32 * 32, 100);
const WHITE = Buffer.alloc(3 * 32 * 32, 255);

async function loadTrap(t: ExecutionContext, kind: TrapKind, { isShipped = false } = {}) {
  const { form, ...prepared } = await writeTrapModel(await temporaryFolder(t), {
    kind,
    enlargePx: 5800,
  });
  const runtime = { intraOpThreads: 1, sharesCores: false, allowCpuNodes: true };
  const spec = { ...prepared, ...runtime, ...(!isShipped && form && { form }) };
  return (await LoadedModel.load(spec)).model;
}

test('an error of a graph is the fault of the picture where the check picture is answered', async t => {
  for (const [kind, message] of [
    ['reshapes', /cannot be reshaped.* for this picture$/s],
    ['widens', /no matte for this picture$/],
    ['rowless', /nothing for this picture$/],
  ] as const) {
    const model = await loadTrap(t, kind);
    await t.throwsAsync(model.run(WHITE), { instanceOf: NoMatteError, message }, kind);
    t.is((await model.run(GREY)).alpha[0], 100, kind);
  }
});

test('an answer over the bound is refused, as it is in a probe', async t => {
  const model = await loadTrap(t, 'enlarges');
  const over = { instanceOf: NoMatteError, message: /1x1x5800x5800: over 33554432 values/ };
  await t.throwsAsync(model.run(WHITE), over);
});

test('an error of a shipped model is the fault of the node: it has no other picture to try', async t => {
  const shipped = await loadTrap(t, 'reshapes', { isShipped: true });
  const error = await t.throwsAsync(shipped.run(WHITE), { message: /cannot be reshaped/ });
  t.false(error instanceof NoMatteError);
});
