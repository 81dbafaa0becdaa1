/**
 * Passwords: argon2id with OWASP's parameters (19 MiB, two passes, one lane; a tenth of a second of
 * a core) in the PHC string format. A hash takes its memory outside of the heap, so few run at
 * once, and few wait. Strangers share slots by their network. A person who is signed in, or whose
 * browser is known, never waits for strangers.
 */
import { type Argon2Parameters, argon2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { type ContractError, unavailable } from '@matting/proto/contract/errors.ts';

export interface PasswordCosts {
  readonly memory: number;
  readonly passes: number;
}

/** KiB. */
const COSTS: PasswordCosts = { memory: 19_456, passes: 2 };
const LANES = 1;
const SALT_BYTES = 16;
const HASH_BYTES = 32;

/** Few, since all together take 57 MiB, and threads of the pool that also reads files. */
const STRANGERS_HASHES_MAX = 2;
const KNOWN_HASHES_MAX = 1;
/** Strangers for a few seconds of hashing, and this many known people, too. */
const WAITING_MAX = 64;
const WAIT_MS = 5000;
const BUSY_RETRY_AFTER_S = 5;

const FORM =
  /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})$/;

const hashWith = promisify(
  (parameters: Argon2Parameters, done: (error: Error | null, hash: Buffer) => void) =>
    argon2('argon2id', parameters, done),
);

export class Passwords {
  readonly #costs: PasswordCosts;
  readonly #strangers = slotsOf(STRANGERS_HASHES_MAX);
  readonly #known = slotsOf(KNOWN_HASHES_MAX);

  constructor(costs = COSTS) {
    this.#costs = costs;
  }

  get waiting(): number {
    return this.#strangers.waiting + this.#known.waiting;
  }

  /**
   * Makes the stored form of a password.
   * @param address of the network whose slot the hash takes
   * @param knownId the person whose slot it takes, if they are signed in or their browser is known
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  hash(password: string, address: string, knownId?: string): Promise<string> {
    return this.#run(address, knownId, async () => {
      const nonce = randomBytes(SALT_BYTES);
      const { memory, passes } = this.#costs;
      const hash = await hashWith(parametersOf(password, nonce, this.#costs));
      const text = (bytes: Buffer) => bytes.toString('base64').replaceAll('=', '');
      return `$argon2id$v=19$m=${memory},t=${passes},p=${LANES}$${text(nonce)}$${text(hash)}`;
    });
  }

  /**
   * Always does the same work, so that the time does not reveal who exists.
   * @param stored null: there is no such person, or they have no password
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  verify(
    password: string,
    stored: string | null,
    address: string,
    knownId?: string,
  ): Promise<boolean> {
    return this.#run(address, knownId, async () => {
      const known = stored === null ? undefined : parse(stored);
      const nonce = known?.nonce ?? Buffer.alloc(SALT_BYTES);
      const parameters = parametersOf(password, nonce, this.#costs);
      const hash = await hashWith({ ...parameters, ...known?.costs });
      return known !== undefined && timingSafeEqual(hash, known.hash);
    });
  }

  #run<T>(address: string, knownId: string | undefined, work: () => Promise<T>): Promise<T> {
    return knownId === undefined
      ? this.#strangers.run({ key: networkOf(address) }, work)
      : this.#known.run({ key: knownId }, work);
  }
}

function slotsOf(max: number): Semaphore {
  return new Semaphore({ max, waitingMax: WAITING_MAX, waitMs: WAIT_MS, refusal: busy });
}

function parametersOf(password: string, nonce: Buffer, costs: PasswordCosts): Argon2Parameters {
  return {
    message: password.normalize('NFC'),
    nonce,
    ...costs,
    parallelism: LANES,
    tagLength: HASH_BYTES,
  };
}

/** @throws Error: this program did not write the stored text */
function parse(stored: string) {
  const [, memory, passes, parallelism, nonce = '', hash = ''] = FORM.exec(stored) ?? [];
  if (memory === undefined) throw new Error('a stored password has another form');
  const bytes = Buffer.from(hash, 'base64');
  return {
    nonce: Buffer.from(nonce, 'base64'),
    hash: bytes,
    costs: {
      memory: Number(memory),
      passes: Number(passes),
      parallelism: Number(parallelism),
      tagLength: bytes.length,
    },
  };
}

function busy(): ContractError {
  return unavailable('Too many people sign in at once. Try again later.', BUSY_RETRY_AFTER_S);
}

const PASSWORD_LENGTH_MIN = 12;
export const PASSWORD_LENGTH_MAX = 128;

export type PasswordFault = 'tooShort' | 'tooLong' | 'common' | 'likeMail';

/** A part this short is trivial: people append it or repeat it. */
const OWN_PART_LENGTH_MAX = 3;

let common: Promise<ReadonlySet<string>> | undefined;

/** Undefined: allowed. @param mail of the password's owner */
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
  // A common password stays forbidden with a year or an exclamation mark after it, or repeated.
  const tried = [lower, trunkOf(lower)].flatMap(one => [one, repeatedPart(one)]);
  const isListed = tried.some(one => list.has(one) || list.has(trunkOf(one)));
  const isShort = tried.some(one => one.length > 0 && one.length <= OWN_PART_LENGTH_MAX);
  return isListed || isShort || new Set(lower).size < 4 ? 'common' : undefined;
}

function trunkOf(password: string): string {
  return password.replace(/[\d\p{P}\p{S}]+$/u, '');
}

/** The part that repeats, with a few characters after it. The password itself if none does. */
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

function isMostly(password: string, name: string): boolean {
  return name.length > 0 && password.includes(name) && password.length - name.length <= 3;
}
