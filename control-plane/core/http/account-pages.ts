/** A package describes pages of the account area, and another package shows them. */
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { JobsShown } from '../groups/job-groups.ts';
import type { ViewedJob } from '../jobs/job.ts';

/** A list of an account's things, each of which takes a while and has a page with its jobs. */
export interface AccountPage {
  /**
   * The list is `/account/<name>`, and a thing's page `/account/<name>/<id>`. A form to
   * `/account/<name>/<id>/<action>` acts on the thing.
   */
  readonly name: string;
  readonly words: Readonly<Record<'en' | 'zh-CN', AccountPageWords>>;
  /** The type of webhooks about a thing, by its id. */
  readonly event?: string;
  /** By their names. */
  readonly actions: Readonly<Record<string, AccountAction>>;
  /** The newest first; their number is bounded. */
  list(accountId: string): Promise<readonly AccountThing[]>;
  /** With its jobs from that position on, or some of them alone. Undefined: there is none. */
  find(
    id: string,
    of: {
      readonly accountId: string;
      readonly from: number;
      readonly only?: JobsShown | undefined;
    },
  ): Promise<AccountThingPage | undefined>;
}

interface AccountAction {
  /** Whoever may cancel jobs, or whoever may correct results. */
  readonly by: 'owners' | 'members';
  /**
   * Resolves with what to say, a name in `said`, on the page of that thing; undefined: the account
   * has no such thing.
   * @throws what the actor's `refusal` resolves with
   */
  act(
    id: string,
    by: { readonly accountId: string; readonly actor: Actor },
  ): Promise<{ readonly said: string; readonly id: string } | undefined>;
}

type Texts<Name extends string = string> = Readonly<Record<Name, string>>;

/**
 * `ended` is such as `{done} of {all}`; `confirm` is what a button asks before it acts; `part` is
 * such as `Picture {number}`, a job without a reference.
 */
interface AccountPageWords
  extends Texts<'title' | 'lead' | 'created' | 'state' | 'progress' | 'failed' | 'thing' | 'ended'>,
    Texts<'name' | 'part' | 'action'> {
  readonly actions: Readonly<Record<string, Texts<'label' | 'confirm'>>>;
  readonly said: Texts;
  readonly states: Texts;
  readonly empty: Texts<'title' | 'text'>;
}

interface AccountThing {
  readonly id: string;
  /** Null: it has none. */
  readonly name: string | null;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  /** Names one of the words' `states`. */
  readonly state: string;
  readonly tone: 'neutral' | 'accent' | 'good';
  readonly ended: number;
  readonly all: number;
  readonly failed: number;
  /** Undefined: none makes sense now. */
  readonly action: string | undefined;
}

interface AccountThingPage extends AccountThing {
  /** Null: the page looks again by itself. */
  readonly finishedAtMs: number | null;
  /** By names of the words' `states`. */
  readonly counts: Readonly<Record<string, number>>;
  /** In the order of their positions in it; their number is bounded. */
  readonly jobs: readonly ViewedJob[];
  /** The next page begins here; undefined: this is the last. */
  readonly next: number | undefined;
}
