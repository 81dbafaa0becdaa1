/**
 * Which passwords may be set (NIST SP 800-63B section 3.1.1, OWASP ASVS 6.2): long ones of any
 * characters, but for those that everybody tries first. The list, 49,000 of them, is loaded with
 * the first password that is set.
 */

/** Characters. */
export const PASSWORD_LENGTH_MIN = 12;
export const PASSWORD_LENGTH_MAX = 128;

export type PasswordFault = 'tooShort' | 'tooLong' | 'common' | 'likeMail';

let common: Promise<ReadonlySet<string>> | undefined;

/** Undefined: it may be set. @param mail whose it will be */
export async function passwordFaultOf(
  password: string,
  mail: string,
): Promise<PasswordFault | undefined> {
  const { length } = [...password];
  if (length < PASSWORD_LENGTH_MIN) return 'tooShort';
  if (length > PASSWORD_LENGTH_MAX) return 'tooLong';
  const lower = password.toLowerCase();
  const [name = ''] = mail.toLowerCase().split('@');
  if (lower.includes(mail.toLowerCase()) || isMostly(lower, name)) return 'likeMail';
  common ??= readCommonPasswords();
  const list = await common;
  // Those that are on it with a year, an exclamation mark or a repetition behind them too.
  const trunk = lower.replace(/[\d\p{P}\p{S}]+$/u, '');
  const half = lower.slice(0, lower.length / 2);
  const isTwice = lower === half + half;
  const tried = [lower, ...(trunk.length > 0 ? [trunk] : []), ...(isTwice ? [half] : [])];
  const isCommon = tried.some(one => list.has(one)) || new Set(lower).size < 4;
  return isCommon ? 'common' : undefined;
}

async function readCommonPasswords(): Promise<ReadonlySet<string>> {
  const { dictionary } = await import('@zxcvbn-ts/language-common');
  return new Set(dictionary['passwords-common'].map(one => String(one).toLowerCase()));
}

/** Nothing but the name and up to three characters. */
function isMostly(password: string, name: string): boolean {
  return name.length > 0 && password.includes(name) && password.length - name.length <= 3;
}
