import test from 'ava';
import { MatteServiceService } from '../../gen/matting/v1/matte_service.ts';
import { MATTE } from '../chunk-wire.ts';

const { matte: generated } = MatteServiceService;
const LENGTHS = [1, 127, 128, 1000, 1020, 16_384, 70_000, 256 * 1024];

for (const length of LENGTHS) {
  test(`a chunk of ${length} bytes › is on the wire as the generated code has it, and comes back`, t => {
    const data = Buffer.from(Array.from({ length }, (_, index) => index * 31));
    const message = { message: { $case: 'chunk', value: { data } } } as const;
    const request = MATTE.requestSerialize(message);
    const response = MATTE.responseSerialize(message);
    t.deepEqual(request, generated.requestSerialize(message));
    t.deepEqual(response, generated.responseSerialize(message));
    const read = [MATTE.requestDeserialize(request), MATTE.responseDeserialize(response)];
    t.deepEqual(read, [message, message]);
    const memories = read.map(
      one => one.message?.$case === 'chunk' && one.message.value.data.buffer,
    );
    if (length > 1020) t.deepEqual(memories, [request.buffer, response.buffer], 'a copy');
  });
}

test('a chunk › is read by the generated code if it is cut, split or in another order', t => {
  const { requestSerialize: write } = generated;
  const chunk = (byte: number) =>
    write({ message: { $case: 'chunk', value: { data: Buffer.alloc(2000, byte) } } });
  for (const bytes of [
    generated.requestSerialize({ message: { $case: 'chunk', value: { data: Buffer.alloc(0) } } }),
    Buffer.concat([chunk(1), chunk(2)]),
    Buffer.concat([chunk(1), Buffer.from([10, 0])]),
    Buffer.concat([chunk(1), Buffer.from([24, 1])]),
    chunk(1).subarray(0, 1500),
    Buffer.concat([Buffer.from([18, 0x88, 0x1f]), Buffer.alloc(3976)]),
  ]) {
    const readBy = (read: (bytes: Buffer) => unknown) => {
      try {
        return read(bytes);
      } catch (error) {
        return String(error);
      }
    };
    t.deepEqual(readBy(MATTE.requestDeserialize), readBy(generated.requestDeserialize));
  }
});
