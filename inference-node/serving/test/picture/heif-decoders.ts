import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { isNotTested } from '@matting/test-support/skip.ts';
import { findHeifDecoder, HEIF_PATHS } from '../../picture/children/find-heif-decoder.ts';
import type { HeifDecoder } from '../../picture/children/heif-decoder.ts';

/** libheif-js is in no lock file: this names a folder whose node_modules have it. */
const folder = process.env.MATTING_TEST_LIBHEIF_JS;
const places =
  folder === undefined ? HEIF_PATHS : { ...HEIF_PATHS, modulesFrom: path.join(folder, 'x.js') };

function hasModule(): boolean {
  const require = createRequire(places.modulesFrom);
  return (require.resolve.paths('libheif-js') ?? []).some(modules =>
    existsSync(path.join(modules, 'libheif-js')),
  );
}

const MISSING = {
  js: !hasModule() && 'HEIC by libheif-js: MATTING_TEST_LIBHEIF_JS names no folder that has it',
  system:
    !places.programs.some(existsSync) && 'HEIC by heif-dec: libheif-examples are not installed',
};

export interface TestedDecoder {
  readonly kind: HeifDecoder['kind'];
  readonly untested: boolean;
  find(): Promise<HeifDecoder>;
}

export const TESTED_DECODERS: readonly TestedDecoder[] = (['js', 'system'] as const).map(kind => ({
  kind,
  untested: isNotTested(MISSING[kind]),
  async find() {
    const { decoder, failures } = await findHeifDecoder(kind, places);
    if (decoder === undefined) throw new Error(failures.join('\n'));
    return decoder;
  },
}));

/** @returns undefined: this machine has none */
export async function findTestedDecoder(): Promise<HeifDecoder | undefined> {
  return await TESTED_DECODERS.findLast(({ untested }) => !untested)?.find();
}
