/** A package describes pages of the account area here; another package shows them. */
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { JobsShown } from '../groups/job-groups.ts';
import type { ViewedJob } from '../jobs/job.ts';

export interface AccountPage {
  /**
   * The list is at `/account/<name>`, an item at `/account/<name>/<id>`. A form posts an action to
   * `/account/<name>/<id>/<action>`.
   */
  readonly name: string;
  readonly words: Readonly<Record<'en' | 'zh-CN', AccountPageWords>>;
  /** The event type of webhooks about an item. */
  readonly event?: string;
  readonly actions: Readonly<Record<string, AccountAction>>;
  /** The newest first; bounded. */
  list(accountId: string): Promise<readonly AccountThing[]>;
  /** The item and its jobs from position `from` on, perhaps not all. Undefined: no such item. */
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
  /** owners: people who may cancel jobs. members: people who may correct results. */
  readonly by: 'owners' | 'members';
  /**
   * Resolves with the page's message, a name in `words.said`. Undefined: the account has no such
   * item.
   * @throws what the actor's `refusal` resolves with
   */
  act(
    id: string,
    by: { readonly accountId: string; readonly actor: Actor },
  ): Promise<{ readonly said: string; readonly id: string } | undefined>;
}

type Texts<Name extends string = string> = Readonly<Record<Name, string>>;

/**
 * `ended`: such as `{done} of {all}`. `part`: names a job without a reference, such as `Picture
 * {number}`. `confirm`: the question before an action.
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
  readonly name: string | null;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  /** A name in `words.states`. */
  readonly state: string;
  readonly tone: 'neutral' | 'accent' | 'good';
  readonly ended: number;
  readonly all: number;
  readonly failed: number;
  readonly action: string | undefined;
}

interface AccountThingPage extends AccountThing {
  /** Null while jobs are open; the page then reloads by itself. */
  readonly finishedAtMs: number | null;
  readonly counts: Readonly<Record<string, number>>;
  /** In order of position; bounded. */
  readonly jobs: readonly ViewedJob[];
  /** Undefined: this is the last page. */
  readonly next: number | undefined;
}
