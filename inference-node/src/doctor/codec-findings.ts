/** The libraries that read what callers send. */
import { type Finding, failure, ok, warning } from '#program/doctor/findings.ts';

/** The first without the overflows of the heap that were found in 2026: an AVIF file reaches them. */
const LIBHEIF_MIN = '1.23.3';

/** Loaded here alone: where sharp does not load, that is a finding as well. */
export async function codecFindings(): Promise<readonly Finding[]> {
  const { libheifVersion } = await import('../picture/codecs/codec-sharp.ts');
  return [libheifFinding(libheifVersion)];
}

/** @param version undefined: sharp runs on a libvips that is not its own. */
export function libheifFinding(version: string | undefined): Finding {
  if (version === undefined) {
    const found = 'sharp runs on a libvips of this system, which does not say its libheif';
    return warning('codecs', found, `see that it is ${LIBHEIF_MIN} or later, or npm ci`);
  }
  const found = `AVIF is read by libheif ${version}`;
  if (version.localeCompare(LIBHEIF_MIN, 'en', { numeric: true }) >= 0) return ok('codecs', found);
  const holes = `${found}: below ${LIBHEIF_MIN} a picture can take the process over`;
  return failure('codecs', holes, 'npm ci, which installs the sharp that package-lock.json names');
}
