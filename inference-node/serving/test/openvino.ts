/** OpenVINO from MATTING_TEST_PROVIDER_DIR, if set. */
import { isNotTested } from '@matting/test-support/skip.ts';
import ava, { type ExecutionContext, type TestFn } from 'ava';
import type { InstalledOpenvino } from '../models/prepared-model.ts';
import { findOpenvino } from '../providers/openvino-files.ts';
import type { RuntimeContext } from './pool-harness.ts';

const { MATTING_TEST_PROVIDER_DIR: providerDir, MATTING_TEST_REQUIRE_OPENVINO } = process.env;
const found =
  providerDir === undefined
    ? 'MATTING_TEST_PROVIDER_DIR names no folder with it'
    : await findOpenvino(providerDir, 'auto');

if (typeof found === 'string' && MATTING_TEST_REQUIRE_OPENVINO === '1') throw new Error(found);

export const isWithoutOpenvino = isNotTested(typeof found === 'string' && `OpenVINO: ${found}`);

export function openvinoHere(): InstalledOpenvino {
  if (typeof found === 'string') throw new Error(found);
  return found;
}

/** Registers a test with ONNX Runtime, and again with OpenVINO if it is there. */
export function onEachRuntime(
  title: string,
  body: (t: ExecutionContext<RuntimeContext>) => Promise<void>,
): void {
  const serial = ava.serial as TestFn<RuntimeContext>['serial'];
  serial(title, async t => {
    t.context = {};
    await body(t);
  });
  if (isWithoutOpenvino) return;
  serial(`${title}, by OpenVINO`, async t => {
    t.context = { openvino: { library: openvinoHere().library } };
    await body(t);
  });
}
