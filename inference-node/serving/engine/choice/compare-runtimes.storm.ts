/**
 * Some hundred awkward graphs that lie beside the checkout, as if each were prepared: comparing the
 * runtimes ends for every one of them, in bounded time and memory, and names what it chose.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { descendantsOf } from '@matting/test-support/processes.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava from 'ava';
import { hashFile } from '../../models/cache-files.ts';
import { prepareRuntime } from '../../prepared/cpu-runtime.ts';
import { ModelProto } from '../../test/onnx-messages.ts';
import { isWithoutOpenvino, openvinoHere } from '../../test/openvino.ts';
import { ownClock } from '../../test/own-clock.ts';
import { COMPILE_MAX_MS, runtimeTools } from './compare-runtimes.ts';

const FOLDER = fileURLToPath(
  new URL('../../../../../shared/research/models/small/', import.meta.url),
);
const SIDE_PX = 128;
/** Real time that a graph gets before the clock is put forward to its bound. */
const PATIENCE_MS = 10_000;

/** OpenVINO folds or runs these without end. */
const ENDLESS = ['hostile-deep', 'hostile-loop', 'hostile-loop-folded'];

const isAbsent = isNotTested(!existsSync(FOLDER) && `awkward graphs by OpenVINO: no ${FOLDER}`);
const test = isWithoutOpenvino || isAbsent ? ava.skip : ava;

function outputOf(file: string): string {
  try {
    const { graph } = ModelProto.decode(readFileSync(file));
    return graph?.output.at(-1)?.name ?? 'alpha';
  } catch {
    return 'alpha';
  }
}

test('comparing runtimes ends for every graph, and says why it keeps ONNX Runtime', async t => {
  const clock = ownClock(t);
  const folder = await temporaryFolder(t);
  const tiny = await writeTinyModel(folder, { width: SIDE_PX, height: SIDE_PX });
  const names = readdirSync(FOLDER).flatMap(file => file.match(/^(.*)\.onnx$/)?.[1] ?? []);
  names.sort();
  t.true(names.length > 90);
  const endless: string[] = [];
  for (const name of names) {
    const file = path.join(folder, `${name}.onnx`);
    await copyFile(path.join(FOLDER, `${name}.onnx`), file);
    const model = {
      ...tiny,
      ...{ model: name, path: file, sha256: await hashFile(file), outputName: outputOf(file) },
    };
    const comparing = new AbortController().signal;
    const options = { wanted: 'auto', openvino: openvinoHere(), comparing } as const;
    const answering = { machine: 'this one', runtimes: runtimeTools({}) };
    const preparing = prepareRuntime(model, options, answering);
    let isOver = false;
    await Promise.race([preparing.then(() => (isOver = true)), delay(PATIENCE_MS)]);
    if (!isOver) {
      endless.push(name);
      await clock.tickAsync(COMPILE_MAX_MS);
    }
    const { runtimeFallback, openvino } = await preparing;
    t.true(openvino !== undefined || runtimeFallback !== undefined, name);
    t.deepEqual(descendantsOf(process.pid), [], name);
  }
  t.deepEqual(endless, ENDLESS);
});
