// An upload, its job and an error by the client that oapi-codegen made of /v1/openapi.json.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"

	"github.com/google/uuid"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	url, key, picture := os.Args[1], os.Args[2], must(os.ReadFile(os.Args[3]))
	ctx := context.Background()
	client := must(NewClientWithResponses(url, WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", "Bearer "+key)
			return nil
		})))
	params := func() *SubmitMattingParams { return &SubmitMattingParams{IdempotencyKey: uuid.NewString()} }

	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	must(must(form.CreateFormFile("image_file", "photo.jpg")).Write(picture))
	form.Close()
	uploaded := must(client.SubmitMattingWithBodyWithResponse(ctx, params(), form.FormDataContentType(), &body))
	job := must(uploaded.JSON200.AsSucceededJob())

	text, width := base64.StdEncoding.EncodeToString(picture), 200
	asked := MattingRequest{ImageBase64: &text, OutputWidth: &width}
	wide := must(must(client.SubmitMattingWithResponse(ctx, params(), asked)).JSON200.AsSucceededJob())
	if wide.Result.Width != width {
		panic(fmt.Sprint(wide))
	}
	read := must(client.ReadMattingJobWithResponse(ctx, job.JobId, &ReadMattingJobParams{IdempotencyKey: uuid.NewString()}))
	if status := must(read.JSON200.Discriminator()); status != "succeeded" {
		panic(status)
	}
	wrong := "AAAA"
	refused := must(client.SubmitMattingWithResponse(ctx, params(), MattingRequest{ImageBase64: &wrong}))
	if refused.ApplicationproblemJSON400.Code != "UNSUPPORTED_IMAGE_FORMAT" {
		panic(fmt.Sprint(refused.ApplicationproblemJSON400))
	}
}
