const WARNED: Readonly<Record<string, string>> = {
  no_subject: 'no subject found',
  subject_unsure: 'the result is uncertain; much of the subject is half transparent',
  subject_cut_off: 'the subject reaches the edge of the picture',
};

/** @param warnings may have unknown codes of a later service */
export function warnedOf(warnings: readonly string[]): string {
  return warnings.map(code => (code in WARNED ? `${code}: ${WARNED[code]}` : code)).join('; ');
}
