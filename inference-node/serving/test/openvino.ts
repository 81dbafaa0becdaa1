/** The OpenVINO that tests run on, where one is installed. */
import { homedir } from 'node:os';
import path from 'node:path';
import { isNotTested } from '@matting/test-support/skip.ts';
import type { OpenvinoHere } from '../models/prepared-model.ts';
import { findOpenvino } from '../providers/openvino-files.ts';

const { MATTING_TEST_PROVIDER_DIR, MATTING_TEST_REQUIRE_OPENVINO, XDG_CACHE_HOME } = process.env;
const cache = XDG_CACHE_HOME ?? path.join(homedir(), '.cache');
const providerDir = MATTING_TEST_PROVIDER_DIR ?? path.join(cache, 'matting-test-tools/providers');
const found = await findOpenvino(providerDir, 'auto');

if (typeof found === 'string' && MATTING_TEST_REQUIRE_OPENVINO === '1') throw new Error(found);

export const isWithoutOpenvino = isNotTested(
  typeof found === 'string' && `OpenVINO: it is not in ${providerDir}`,
);

/** @throws Error where tests did not ask first. */
export function openvinoHere(): OpenvinoHere {
  if (typeof found === 'string') throw new Error(found);
  return found;
}
