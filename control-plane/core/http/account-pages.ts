/** A package describes a page of the account area, and another package shows it. */
import type { Actor } from '../accounts/audit.ts';

/** Lists things of an account, each of which takes a while, and lets an owner act on one. */
export interface AccountPage {
  /** The list is `/account/<name>`; a form to `/account/<name>/<id>/<action>` acts on a thing. */
  readonly name: string;
  readonly action: string;
  readonly words: Readonly<Record<'en' | 'zh-CN', AccountPageWords>>;
  /** The newest first; their number is bounded. */
  list(accountId: string): Promise<readonly AccountThing[]>;
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

/** `ended` is such as `{done} of {all}`; `actConfirm` is what the button asks before it acts. */
interface AccountPageWords
  extends Texts<'title' | 'lead' | 'created' | 'state' | 'progress' | 'failed' | 'thing' | 'ended'>,
    Texts<'act' | 'actConfirm'> {
  readonly said: Texts;
  readonly states: Texts;
  readonly empty: Texts<'title' | 'text'>;
}

interface AccountThing {
  readonly id: string;
  readonly createdAtMs: number;
  /** Names one of the words' `states`. */
  readonly state: string;
  readonly tone: 'neutral' | 'accent' | 'good';
  readonly ended: number;
  readonly all: number;
  readonly failed: number;
  readonly mayAct: boolean;
}
