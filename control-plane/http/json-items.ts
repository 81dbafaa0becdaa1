/**
 * A list of flat objects in a body that is JSON, read as it arrives: only the texts of an item are
 * kept, and the first item beyond the bound ends the reading.
 *
 * | state | expects                | then      |
 * |-------|------------------------|-----------|
 * | first | `{` or `]`             | item, end |
 * | next  | `{`                    | item      |
 * | item  | the rest of the object | more      |
 * | more  | `,` or `]`             | next, end |
 * | end   | nothing                | -         |
 */
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import { malformed, type TextValue, underPath } from './body-fields.ts';
import {
  behindSpace,
  type ItemsReader,
  type JsonFields,
  JsonFieldsParser,
  rawBytes,
} from './json-fields.ts';
import type { KeptBytes } from './kept-bytes.ts';

/** Memory of an item beside the characters of its texts. */
const ITEM_BYTES = 512;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACKET = 0x5d;
const COMMA = 0x2c;

export interface JsonItemsOptions<Text extends string, Item> {
  readonly field: string;
  readonly itemsMax: number;
  readonly fields: JsonFields<Text>;
  /** @throws ContractError of a field of the item */
  itemOf(texts: ReadonlyMap<Text, TextValue>): Item;
}

export class JsonItems<Text extends string, Item> implements ItemsReader {
  readonly items: Item[] = [];
  readonly #options: JsonItemsOptions<Text, Item>;
  readonly #room: HeldRoom;
  readonly #raw: KeptBytes;
  #state: 'first' | 'next' | 'item' | 'more' | 'end' = 'first';
  /** The one that is read now, or was last. */
  #item: JsonFieldsParser<Text>;

  /** @param room for the items */
  constructor(options: JsonItemsOptions<Text, Item>, room: HeldRoom) {
    this.#options = options;
    this.#room = room;
    this.#raw = rawBytes(room);
    this.#item = this.#newItem();
  }

  get field(): string {
    return this.#options.field;
  }

  get ended(): boolean {
    return this.#state === 'end';
  }

  /** @throws ContractError INVALID_REQUEST; it names the item and its field */
  take(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && !this.ended) {
      if (this.#state === 'item') at = this.#takeItem(chunk, at);
      else {
        at = behindSpace(chunk, at);
        if (at < chunk.length && this.#takeByte(chunk[at]!)) at += 1;
      }
    }
    return at;
  }

  /** False: the byte is the first of an item. */
  #takeByte(byte: number): boolean {
    const { field, itemsMax } = this.#options;
    if (this.#state === 'more') {
      if (byte === COMMA) this.#state = 'next';
      else if (byte === CLOSING_BRACKET) this.#state = 'end';
      else throw malformed(`${field} has no comma between two items.`, field, 'is not valid JSON');
      return true;
    }
    const isEmpty = this.#state === 'first' && byte === CLOSING_BRACKET;
    if (isEmpty || this.items.length === itemsMax) {
      const wrong = `must have 1 to ${itemsMax} items`;
      throw malformed(`${field} ${wrong}.`, field, wrong);
    }
    if (byte !== OPENING_BRACE) {
      throw malformed(`${this.#path} must be a JSON object.`, this.#path, 'must be a JSON object');
    }
    this.#room.grow(ITEM_BYTES);
    this.#item = this.#newItem();
    this.#state = 'item';
    return false;
  }

  #takeItem(chunk: Buffer, from: number): number {
    const item = this.#item;
    return underPath(this.#path, () => {
      const end = item.takeObject(chunk, from);
      if (item.ended) {
        this.items.push(this.#options.itemOf(item.finish().texts));
        this.#state = 'more';
      }
      return end;
    });
  }

  #newItem(): JsonFieldsParser<Text> {
    return new JsonFieldsParser(this.#options.fields, this.#room, this.#raw);
  }

  get #path(): string {
    return `${this.#options.field}[${this.items.length}]`;
  }
}
