/**
 * Which passwords may be set (NIST SP 800-63B section 3.1.1, OWASP ASVS 6.2): long ones of any
 * characters, but for those that everybody tries first. The list, 49,000 of them, is loaded with
 * the first password that is set.
 */

/** Characters. */
export const PASSWORD_LENGTH_MIN = 12;
export const PASSWORD_LENGTH_MAX = 128;

export type PasswordFault = 'tooShort' | 'tooLong' | 'common' | 'likeMail';

/** What is no password by itself: what somebody adds, or what is repeated. */
const OWN_PART_LENGTH_MAX = 3;

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
  // Those that are on it with a year or an exclamation mark behind them, or repeated, too.
  const tried = [lower, trunkOf(lower)].flatMap(one => [one, repeatedPart(one)]);
  const isListed = tried.some(one => list.has(one) || list.has(trunkOf(one)));
  const isShort = tried.some(one => one.length > 0 && one.length <= OWN_PART_LENGTH_MAX);
  return isListed || isShort || new Set(lower).size < 4 ? 'common' : undefined;
}

/** Without the digits and marks behind it. */
function trunkOf(password: string): string {
  return password.replace(/[\d\p{P}\p{S}]+$/u, '');
}

/**
 * What it is made of where it is that again and again, the last time perhaps in part, with a few
 * characters behind; itself where it is not.
 */
function repeatedPart(password: string): string {
  for (let length = 1; length <= password.length / 2; length += 1) {
    const part = password.slice(0, length);
    const times = Math.floor(password.length / length);
    const rest = password.slice(length * times);
    const isRest = rest.length <= OWN_PART_LENGTH_MAX || part.startsWith(rest);
    if (isRest && password.startsWith(part.repeat(times))) return part;
  }
  return password;
}

async function readCommonPasswords(): Promise<ReadonlySet<string>> {
  const { dictionary } = await import('@zxcvbn-ts/language-common');
  return new Set(dictionary['passwords-common'].map(one => String(one).toLowerCase()));
}

/** Nothing but the name and up to three characters. */
function isMostly(password: string, name: string): boolean {
  return name.length > 0 && password.includes(name) && password.length - name.length <= 3;
}
