/** What the service warns of, in words. */
const WARNED: Readonly<Record<string, string>> = {
  no_subject: 'no subject was seen',
  subject_unsure: 'the subject is unsure: much of it is half transparent',
  subject_cut_off: 'the edges of the picture cut the subject off',
};

/** @param warnings codes, of which a later service may have more */
export function warnedOf(warnings: readonly string[]): string {
  return warnings.map(code => (code in WARNED ? `${code}: ${WARNED[code]}` : code)).join('; ');
}
