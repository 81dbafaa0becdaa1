/** A package describes pages of the account area, and another package shows them. */
import type { Actor } from '../accounts/audit.ts';
import type { Job } from '../jobs/job.ts';

/** A list of an account's things, each of which takes a while and has a page with its jobs. */
export interface AccountPage {
  /**
   * The list is `/account/<name>`, and a thing's page `/account/<name>/<id>`. An owner's form to
   * `/account/<name>/<id>/<action>` acts on the thing.
   */
  readonly name: string;
  readonly action: string;
  readonly words: Readonly<Record<'en' | 'zh-CN', AccountPageWords>>;
  /** The newest first; their number is bounded. */
  list(accountId: string): Promise<readonly AccountThing[]>;
  /** With its jobs from that position on, or the failed ones alone. Undefined: there is none. */
  find(
    id: string,
    of: { readonly accountId: string; readonly from: number; readonly failed: boolean },
  ): Promise<AccountThingPage | undefined>;
  /**
   * Resolves with what to say, a name in `said`; undefined: the account has no such thing.
   * @throws what the actor's `refusal` resolves with
   */
  act(
    id: string,
    by: { readonly accountId: string; readonly actor: Actor },
  ): Promise<string | undefined>;
}

type Texts<Name extends string = string> = Readonly<Record<Name, string>>;

/**
 * `ended` is such as `{done} of {all}`; `actConfirm` is what the button asks before it acts; `part`
 * is such as `Picture {number}`, a job without a reference.
 */
interface AccountPageWords
  extends Texts<'title' | 'lead' | 'created' | 'state' | 'progress' | 'failed' | 'thing' | 'ended'>,
    Texts<'act' | 'actConfirm' | 'part'> {
  readonly said: Texts;
  readonly states: Texts;
  readonly empty: Texts<'title' | 'text'>;
}

interface AccountThing {
  readonly id: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  /** Names one of the words' `states`. */
  readonly state: string;
  readonly tone: 'neutral' | 'accent' | 'good';
  readonly ended: number;
  readonly all: number;
  readonly failed: number;
  readonly mayAct: boolean;
}

interface AccountThingPage extends AccountThing {
  /** Null: the page looks again by itself. */
  readonly finishedAtMs: number | null;
  /** By names of the words' `states`. */
  readonly counts: Readonly<Record<string, number>>;
  /** In the order of their positions in it; their number is bounded. */
  readonly jobs: readonly Job[];
  /** The next page begins here; undefined: this is the last. */
  readonly next: number | undefined;
}
