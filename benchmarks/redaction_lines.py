"""Lines as they stand in shells, configuration, code and chat, with a secret in them or with what only looks like one.

They were written down before the rules that mask them. A line is `kind|text`; the secret stands between « and »,
placeholders are those of the corpus, and ⏎ is a line break.
"""

from typing import Final

__all__ = ["HARMLESS_LINES", "SECRET_LINES"]

SECRET_LINES: Final = r"""
cookie-short|Cookie: a=1; lang=en; «session=<url:40>»; theme=dark
cookie-short|Set-Cookie: «sid=s%3A<url:32>.<url:43>»; Path=/; HttpOnly
pem-line|"private_key": "«-----BEGIN PRIVATE KEY-----\n<b64:64>\n<b64:64>\n<b64:30>==\n-----END PRIVATE KEY-----»\n"
pem-line|KEY="«-----BEGIN RSA PRIVATE KEY-----<b64:300>-----END RSA PRIVATE KEY-----»"
pem-line|«-----BEGIN EC PRIVATE KEY----- <b64:160> -----END EC PRIVATE KEY-----»
mysql|mysql -h db1 -u root -p«<password>» shop < dump.sql
mysql|mysqldump --user=root --password=«<password>» --all-databases
mysql|mariadb -uadmin -p'«<password>»' -e 'show tables'
sshpass|sshpass -p «<password>» ssh deploy@10.0.0.5 uptime
sshpass|sshpass -p'«<password>»' scp a.tgz root@web1:/srv
docker|docker login -u ci -p «<password>» registry.example.com
docker|docker login --username ci --password «<password>» ghcr.io
podman|podman login -u ci -p «<an:24>» quay.io
redis|redis-cli -h cache -a «<password>» ping
redis|redis-cli -u redis://default:«<password>»@cache:6379 info
aws|aws configure set aws_secret_access_key «<b64:40>»
aws|aws configure set aws_session_token «<b64:120>» --profile dev
oracle|jdbc:oracle:thin:scott/«<password>»@//db.example.com:1521/ORCL
oracle|sqlplus scott/«<password>»@orcl
telegram|https://api.telegram.org/bot«<num:10>:AA<url:33>»/sendMessage
telegram|bot token «<num:9>:AA<url:33>» works
telegram|TELEGRAM_BOT=«<num:10>:AA<url:33>»
curl-u|curl -u admin:«<password>» https://jenkins.example.com/job/x/build
curl-u|curl --user 'me@example.com:«<an:24>»' https://example.atlassian.net/rest/api/3/myself
wget|wget --http-user=joe --http-password=«<password>» https://files.example.com/a.zip
psql|PGPASSWORD=«<password>» psql -h db -U app shop
psql|psql "postgresql://app:«<password>»@db:5432/shop?sslmode=require"
mongo|mongosh "mongodb+srv://root:«<password>»@cluster0.ab1cd.mongodb.net/test"
mongo|mongo --username root --password «<password>» --authenticationDatabase admin
netrc|machine api.heroku.com login me@example.com password «<hex:36>»
netrc|machine github.com⏎  login joe⏎  password «<an:30>»
pgpass|db.example.com:5432:shop:app:«<password>»
htpasswd|htpasswd -b .htpasswd joe «<password>»
htpasswd|joe:$apr1$«<an:8>$<an:22>»
shadow|root:$6$«<an:16>$<an:86>»:19000:0:99999:7:::
kubeconfig|    client-key-data: «LS0tLS1CRUdJTi<b64:400>»
kubeconfig|    token: «eyJhbGciOiJSUzI1NiIsImtpZCI6<b64:20>.eyJpc3Mi<url:80>.<url:86>»
docker-config|{"auths":{"https://index.docker.io/v1/":{"auth":"«<b64:36>»"}}}
age|«AGE-SECRET-KEY-1<bech:58>»
wireguard|[Interface]⏎PrivateKey = «<b64:43>=»⏎Address = 10.0.0.2/32
wireguard|PresharedKey = «<b64:43>=»
github|git clone https://«ghp_<an:36>»@github.com/acme/shop.git
github|GH_TOKEN=«gho_<an:36>» gh pr list
github|export GITHUB_TOKEN=«github_pat_<an:22>_<an:59>»
gitlab|curl -H "PRIVATE-TOKEN: «glpat-<url:20>»" https://gitlab.com/api/v4/user
gitlab|CI_JOB_TOKEN=«glcbt-64_<url:20>»
slack|SLACK_TOKEN=«xoxb-<num:12>-<num:12>-<an:24>»
slack|https://hooks.slack.com/services/«T<up:8>/B<up:8>/<an:24>»
stripe|stripe.api_key = "«sk_live_<an:24>»"
stripe|STRIPE_WEBHOOK_SECRET=«whsec_<an:32>»
npm|//registry.npmjs.org/:_authToken=«npm_<an:36>»
npm|//npm.example.com/:_password="«<b64:24>»"
pypi|password = «pypi-AgEIcHlwaS5vcmc<url:150>»
azure|DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=«<b64:86>==»;EndpointSuffix=core.windows.net
azure|Server=tcp:shop.database.windows.net;Database=shop;User ID=app;Password=«<password>»;Encrypt=true
azure|Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«<b64:43>=»
azure|AZURE_CLIENT_SECRET=«<an:3>8Q~<url:34>»
azure|az login --service-principal -u <uuid> -p «<an:34>» --tenant <uuid>
gcp|"apiKey": "«AIza<url:35>»"
gcp|"private_key_id": "<hex:40>", "private_key": "«-----BEGIN PRIVATE KEY-----\nMII<b64:200>\n-----END PRIVATE KEY-----»\n"
gcp|{"refresh_token": "«1//0<url:60>»", "type": "authorized_user"}
gcp|client_secret: «GOCSPX-<url:28>»
gcp|access token «ya29.a0<url:120>»
twilio|TWILIO_AUTH_TOKEN=«<hex:32>»
twilio|client = Client(account, auth_token="«<hex:32>»")
twilio|api key «SK<hex:32>» for the account
sendgrid|«SG.<url:22>.<url:43>»
discord|DISCORD_TOKEN=«M<an:23>.<an:6>.<url:38>»
discord|https://discord.com/api/webhooks/<num:18>/«<url:68>»
digitalocean|doctl auth init -t «dop_v1_<hex:64>»
heroku|HEROKU_API_KEY=«<uuid>»
heroku|«HRKU-AA<url:58>»
vault|VAULT_TOKEN=«hvs.<url:90>»
vault|vault login «s.<an:24>»
vault|Unseal Key 1: «<b64:44>»
databricks|DATABRICKS_TOKEN=«dapi<hex:32>»
huggingface|huggingface-cli login --token «hf_<an:34>»
openai|OPENAI_API_KEY=«sk-proj-<url:48>T3BlbkFJ<url:48>»
openai|openai.api_key = '«sk-<an:48>»'
anthropic|x-api-key: «sk-ant-api03-<url:93>AA»
groq|groq key is «gsk_<an:52>»
perplexity|PPLX=«pplx-<an:48>»
replicate|r8: «r8_<an:37>»
jwt|Authorization: Bearer «<jwt>»
jwt|localStorage.setItem("access", "«<jwt>»")
basic|Authorization: Basic «<b64:32>»
basic|proxy-authorization: basic «<b64:24>==»
header|X-Auth-Token: «<hex:32>»
header|-H 'X-Api-Key: «<an:32>»'
header|"x-functions-key": "«<url:54>==»"
header|Ocp-Apim-Subscription-Key: «<hex:32>»
header|X-Vault-Token: «<an:26>»
header|authorization: token «<hex:40>»
header|Authorization: ApiKey «<b64:40>»
header|Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20240101/us-east-1/s3/aws4_request, Signature=«<hex:64>»
aws|AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE AWS_SECRET_ACCESS_KEY=«<b64:40>»
aws|[default]⏎aws_access_key_id = AKIAIOSFODNN7EXAMPLE⏎aws_secret_access_key = «<b64:40>»
aws|"SecretAccessKey": "«<b64:40>»", "SessionToken": "x"
env|DB_PASS=«<password>»
env|REDIS_PASSWORD: «<password>»
env|SMTP_PASSWD='«<password>»'
env|export SECRET_KEY_BASE=«<hex:128>»
env|DJANGO_SECRET_KEY="«<b64:50>»"
env|ENCRYPTION_KEY=«<hex:64>»
env|JWT_SECRET: "«<an:40>»"
env|APP_KEY=«base64:<b64:43>=»
env|NEXTAUTH_SECRET=«<b64:43>=»
env|ADMIN_PASSPHRASE=«<password>»
env|$env:SQL_PASSWORD = "«<password>»"
env|setx API_SECRET «<an:30>»
env|-e MYSQL_ROOT_PASSWORD=«<password>» mysql:8
env|-e POSTGRES_PASSWORD «<password>»
yaml|  password: «<password>»⏎  user: root
yaml|stringData:⏎  db-password: «<password>»
json|{"username":"joe","password":"«<password>»"}
json|"clientSecret": "«<an:36>»",
json|{\"password\": \"«<password>»\", \"x\": 1}
toml|api_token = "«<an:32>»"
ini|smtp_pass = «<password>»
xml|<Password>«<password>»</Password>
xml|<add key="ApiSecret" value="«<an:32>»" />
xml|<property name="password" value="«<password>»"/>
properties|spring.datasource.password=«<password>»
properties|signing.keyPassword=«<password>»
code|password = "«<password>»"
code|const apiSecret = '«<an:32>»';
code|conn = psycopg2.connect(host="db", user="app", password="«<password>»")
code|os.environ["API_KEY"] = "«<an:32>»"
code|new NetworkCredential("joe", "«<password>»")
code|DriverManager.getConnection(url, "app", "«<password>»")
code|login(user="joe", passwd='«<password>»')
code|:password => "«<password>»"
code|String pwd = "«<password>»";
sql|CREATE USER app WITH PASSWORD '«<password>»';
sql|ALTER USER 'root'@'localhost' IDENTIFIED BY '«<password>»';
sql|SET PASSWORD FOR joe = PASSWORD('«<password>»')
url|https://joe:«<password>»@git.example.com/x.git
url|amqps://app:«<password>»@rabbit:5671/vhost
url|ftp://backup:«<password>»@ftp.example.com/
url|mssql+pyodbc://sa:«<password>»@db/shop?driver=ODBC
url|https://«<an:40>»@sentry.example.com/12
url|https://api.example.com/v1?api_key=«<an:32>»&x=1
url|https://example.com/cb#access_token=«<url:60>»&token_type=bearer
url|https://x.blob.core.windows.net/c/f?sv=2022&sig=«<an:40>%3D»
url|https://bucket.s3.amazonaws.com/k?X-Amz-Signature=«<hex:64>»
url|jdbc:postgresql://db/shop?user=app&password=«<password>»
url|jdbc:sqlserver://db:1433;user=sa;password=«<password>»
flag|mycli deploy --token «<an:32>» --env prod
flag|mycli --api-key=«<an:32>» list
flag|tool --client-secret «<an:40>»
flag|helm install x --set auth.password=«<password>»
flag|terraform apply -var="db_password=«<password>»"
flag|kubectl create secret generic db --from-literal=password=«<password>»
flag|openssl enc -aes-256-cbc -k «<password>» -in a
flag|openssl rsa -in k.pem -passin pass:«<password>»
flag|zip -P «<password>» out.zip a
flag|7z a -p«<password>» out.7z dir
flag|unzip -P «<password>» out.zip
flag|gpg --batch --passphrase «<password>» -d a.gpg
flag|ldapsearch -x -D cn=admin -w «<password>» -b dc=example
flag|smbclient //srv/share -U joe%«<password>»
flag|mosquitto_pub -u joe -P «<password>» -t a -m b
flag|snmpwalk -v3 -u joe -A «<password>» -X $KEY host
flag|snmpwalk -v3 -u joe -A $PASS -X «<password>» host
flag|rclone obscure «<password>»
flag|net use Z: \\srv\share /user:joe «<password>»
flag|sqlcmd -S db -U sa -P «<password>» -Q "select 1"
flag|bcp t out f -U sa -P «<password>»
flag|cqlsh -u cassandra -p «<password>»
flag|influx -username joe -password «<password>»
flag|echo '«<password>»' | sudo -S apt update
flag|echo "joe:«<password>»" | chpasswd
flag|echo «<password>» | docker login -u joe --password-stdin
flag|printf '%s' «<an:30>» | docker secret create api_key -
flag|npm config set //registry.npmjs.org/:_authToken «<an:36>»
flag|git config --global user.token «<hex:40>»
flag|gh secret set API_KEY --body «<an:40>»
flag|heroku config:set SECRET=«<an:40>»
flag|fly secrets set DATABASE_PASSWORD=«<password>»
flag|vault kv put secret/db password=«<password>»
flag|ansible-playbook -e ansible_become_pass=«<password>» x.yml
flag|keytool -genkey -storepass «<password>» -keypass $PASS
flag|keytool -genkey -storepass $PASS -keypass «<password>»
flag|jarsigner -storepass «<password>» a.jar k
flag|svn co --username joe --password «<password>» https://svn.example.com
flag|nmcli dev wifi connect home password «<password>»
flag|wpa_passphrase home «<password>»
flag|    psk="«<password>»"
flag|rsync --password «<password>» a b
flag|lftp -u joe,«<password>» ftp.example.com
flag|curl -H "Authorization: Bearer «<an:40>»" https://api.example.com
flag|http GET example.com -a joe:«<password>»
prose|The password is «<password>», do not share it.
prose|my api key: «<an:32>»
prose|use token «<an:40>» for now
prose|密码是 «<password>»
prose|数据库密码：«<password>»
prose|passwort: «<password>»
prose|contraseña: «<password>»
ssh|«-----BEGIN OPENSSH PRIVATE KEY-----⏎b3BlbnNzaC1rZXktdjEAAAAA<b64:70>⏎<b64:70>⏎<b64:20>==⏎-----END OPENSSH PRIVATE KEY-----»
ssh|PuTTY-User-Key-File-3: ssh-ed25519⏎Private-Lines: 1⏎«<b64:48>»⏎Private-MAC: <hex:64>
pgp|«-----BEGIN PGP PRIVATE KEY BLOCK-----⏎⏎lQdG<b64:60>⏎<b64:60>⏎=<b64:4>⏎-----END PGP PRIVATE KEY BLOCK-----»
provider|LINEAR=«lin_api_<an:40>»
provider|«sntrys_<b64:60>»
provider|«shpat_<hex:32>»
provider|«dckr_pat_<url:27>»
provider|«glsa_<an:32>_<hex:8>»
provider|«NRAK-<up:27>»
provider|«PMAK-<hex:24>-<hex:34>»
provider|«sq0atp-<url:22>»
provider|«EAAA<url:60>» square access token
provider|«key-<hex:32>» mailgun
provider|«<hex:32>-us12» is the mailchimp key
provider|«figd_<url:40>»
provider|«ATATT3xFfGF0<url:170>=<hex:8>»
provider|«patA<an:13>.<hex:64>»
provider|«secret_<an:43>» for notion
provider|«ntn_<an:46>»
provider|«sbp_<hex:40>»
provider|«rdme_<low:70>»
provider|«pscale_pw_<url:43>»
provider|«AKCp<an:69>» artifactory
provider|DD_API_KEY=«<hex:32>»
provider|«xai-<an:80>»
provider|cloudflare_api_token = «<url:40>»
provider|CF_GLOBAL_KEY=«<hex:37>»
provider|ALGOLIA_ADMIN_KEY=«<hex:32>»
provider|PAGERDUTY_TOKEN=«<url:20>»
provider|«AIzaSy<url:33>»
provider|okta token «00<url:40>»
provider|TELEGRAM_API_HASH=«<hex:32>»
more|plink -ssh joe@h -pw «<password>»
more|pscp -pw «<password>» a joe@h:/tmp
more|rdesktop -u joe -p «<password>» host
more|imapsync --host1 a --password1 «<password>»
more|export BORG_PASSPHRASE='«<password>»'
more|RESTIC_PASSWORD=«<password>» restic backup /
more|ConvertTo-SecureString "«<password>»" -AsPlainText -Force
more|PRAGMA key = '«<password>»';
more|sasl_plain_password: «<password>»
more|sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="«<password>»";
more|spark.hadoop.fs.s3a.secret.key=«<b64:40>»
more|auth: { user: 'joe', pass: '«<password>»' }
more|"pw": "«<password>»"
more|otpauth://totp/Shop:joe?secret=«<up:32>»&issuer=Shop
more|X-Gitlab-Token: «<an:24>»
more|java -Djavax.net.ssl.keyStorePassword=«<password>» -jar a.jar
more|requirepass «<password>»
more|masterauth «<password>»
more|bindpw «<password>»
more|wsrep_sst_auth=«sst:<password>»
more|credentials "app.terraform.io" {⏎  token = "«<an:14>.atlasv1.<url:60>»"⏎}
more|access_token: «<an:40>»
more|mount -t cifs //srv/s /mnt -o username=joe,password=«<password>»
more|"connectionString": "Server=db;Uid=sa;Pwd=«<password>»;"
more|mail.smtp.pass=«<password>»
more|git remote add origin https://joe:«<an:40>»@git.example.com/a.git
more|RABBITMQ_DEFAULT_PASS: «<password>»
more|rabbitmqctl add_user joe «<password>»
more|sudo useradd -p «<password>» joe
more|aws secretsmanager create-secret --name a --secret-string «<password>»
more|kubectl create secret docker-registry r --docker-password=«<an:30>»
more|gcloud sql users set-password root --password=«<password>»
more|az sql server create --admin-password «<password>»
more|flask run --key «<an:30>»
more|Set-Item env:TOKEN "«<an:40>»"
more|pulumi config set --secret dbPassword «<password>»
more|wrangler secret put API_TOKEN <<< «<an:40>»
more|curl -d 'grant_type=password&username=joe&password=«<password>»' https://x/token
more|curl https://api.example.com -H 'Authorization: «<an:40>»'
more|{"type":"login","data":{"user":"joe","passwd":"«<password>»"}}
more|user: joe / password: «<password>»
more|login: joe, pass: «<password>»
more|新密码设置为 «<password>»
more|我的 API 密钥是 «<an:32>»
more|MAIL_URL=smtps://joe%40x.com:«<password>»@smtp.example.com:465
more|ENV JWT_SECRET «<an:32>»
more|ARG NPM_TOKEN=«<an:36>»
more|secret_key_base: «<hex:128>»
more|Private Key: «<hex:64>»
more|seed phrase / mnemonic key: 0x«<hex:64>» is the private key
more|Wi-Fi password is «<password>»
more|"webhook_secret":"«<an:32>»"
more|client_secret=«<an:40>»&code=1
more|<input type="hidden" name="csrf_token" value="«<an:40>»">
more|X-CSRF-Token: «<an:40>»
more|basic_auth: ["joe", "«<password>»"]
more|requests.get(url, auth=("joe", "«<password>»"))
more|new MongoClient("mongodb://joe:«<password>»@h/db")
more|s3cmd --access_key=x --secret_key=«<b64:40>» ls
more|mc alias set m https://s3 joe «<password>»
""".strip().splitlines()

HARMLESS_LINES: Final = r"""
git sha|commit <hex:40>
git sha|git checkout <hex:40> -- src
git sha|index <hex:7>..<hex:7> 100644
uuid|request_id=<uuid>
uuid|session: <uuid>
hash|sha256:<hex:64>
hash|md5sum: <hex:32>  a.iso
hash|integrity sha512-<b64:86>==
hash|ETag: "<hex:32>"
image|<img src="data:image/png;base64,iVBORw0KGgo<b64:200>">
code|password = get_password()
code|password = os.environ["DB_PASSWORD"]
code|token = request.headers.get("Authorization")
code|api_key = settings.api_key
code|const token = await getToken(user);
code|password: str = Field(min_length=8)
code|def login(user: str, password: str) -> Token:
code|if not password: raise ValueError("password required")
code|secret = secrets.token_hex(32)
code|self.password = password
code|token = tokens[index]
code|for token in tokenizer.encode(text):
code|let secret: String = env::var("SECRET")?;
code|password = input("Password: ")
code|assert token == expected_token
code|"password": {"type": "string", "minLength": 8}
code|<input type="password" name="password" id="password">
code|key = f"{user}:{date}"
code|public_key = load_public_key(path)
code|return {"token": token, "user": user.id}
code|PASSWORD_RESET_URL = "/accounts/password/reset/"
code|passwordField.setText("")
code|token?: string;
code|password VARCHAR(255) NOT NULL
code|api_key: ${API_KEY}
code|password: {{ .Values.db.password }}
code|password=$DB_PASSWORD
code|PASSWORD=%PASSWORD%
code|Authorization: Bearer $TOKEN
code|Authorization: Bearer <your-token-here>
code|api_key="YOUR_API_KEY"
code|password=********
code|token: ${{ secrets.GITHUB_TOKEN }}
code|import { token } from './token'
code|secretKeyRef:⏎  name: db⏎  key: password
code|valueFrom: secretKeyRef
count|token_count=12
count|max_tokens=4096, temperature=0.7
count|tokens: 12345
count|prompt_tokens=1200 completion_tokens=345 total_tokens=1545
count|{"usage": {"input_tokens": 1200, "output_tokens": 80}}
count|password_min_length = 12
count|token_expiry=3600
count|key_size=2048
count|secrets found: 0
count|password attempts: 3
option|mkdir -p build/output/release
option|cp -p a.txt backup/a.txt
option|ssh -p 2222 deploy@web1
option|docker run -p 8080:80 nginx
option|docker compose -p myproject up -d
option|mysql -u root -p shop
option|mysql -P 3306 -h db
option|tar -czpf out.tgz dir
option|redis-cli -h cache -p 6379 ping
option|grep -a pattern binary.dat
option|ls -a /etc/passwd
option|psql -U app -w -d shop
option|curl -u joe https://example.com
option|curl -k https://example.com/health
option|zip -r out.zip directory
option|7z x archive.7z
option|python -m pytest -p no:cacheprovider
option|openssl rsa -in k.pem -passin env:PASS
option|openssl x509 -in cert.pem -text -noout
option|patch -p1 < fix.diff
option|netstat -anp tcp
option|scp -P 2222 file host:/tmp
option|az group list -o table
option|docker login ghcr.io
option|kubectl get secret db-password -o yaml
option|aws configure set region eu-west-1
option|vault kv get secret/db
option|npm config set registry https://registry.npmjs.org/
option|git config --global user.email me@example.com
option|nmap -p 22,80,443 host
option|ps -p 1234 -o pid,cmd
url|https://github.com/acme/shop/pull/12
url|https://user@example.com/path
url|postgresql://localhost:5432/shop
url|redis://cache:6379/0
url|jdbc:oracle:thin:@//db.example.com:1521/ORCL
url|https://example.com/reset?step=2&lang=en
url|ssh://git@github.com:22/acme/shop.git
url|https://example.com/tokens/list?page=2
path|/home/joe/.ssh/id_rsa
path|~/.aws/credentials
path|src/auth/password_reset_controller.py
path|/var/lib/docker/overlay2/<hex:64>/merged
path|node_modules/.pnpm/@babel+core@7.22.5/node_modules/@babel/core
cookie|Cookie: lang=en; theme=dark
cookie|Set-Cookie: lang=en; Path=/
pem|-----BEGIN CERTIFICATE-----⏎MII<b64:61>⏎<b64:64>⏎-----END CERTIFICATE-----
pem|-----BEGIN PUBLIC KEY-----⏎MII<b64:61>⏎<b64:30>⏎-----END PUBLIC KEY-----
pem|ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<b64:43> joe@host
pem|the file starts with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----
id|arn:aws:iam::<num:12>:role/deploy
id|container <hex:12> exited
id|trace_id=<hex:32> span_id=<hex:16>
id|req_<an:24> failed
id|cus_<an:14> and pi_<an:24>
id|pk_live_<an:24> is publishable
id|call_<an:24>
id|toolu_01<an:22>
id|msg_01<an:22>
id|chatcmpl-<an:29>
id|eyJ is how a JWT starts
time|12:34:56 7:AA is no bot
time|2024-01-02T03:04:05.678Z INFO token refreshed for user 42
prose|The password was changed yesterday.
prose|Your token has expired, please log in again.
prose|I forgot my password and need to reset it.
prose|The secret to good bread is patience.
prose|Keys: title, author, year
prose|the API key is stored in the vault
prose|Password must contain at least 8 characters
prose|密码是在设置里修改的
prose|密码：请输入
prose|令牌已过期
prose|token ring networks are old
prose|use token authentication for the API
prose|author: Joe, key: value
prose|the user id and the password are wrong
csv|id,user,token_type,expires⏎1,joe,bearer,3600
lock|resolution: {integrity: sha512-<b64:86>==}
lock|"checksum" = "<hex:64>"
hexdump|00000010: <hex:4> <hex:4> <hex:4> <hex:4>  ................
color|color: #<hex:6>; background: #<hex:6>
version|python-3.11.7+20240107-x86_64-unknown-linux-gnu
minified|!function(e,t){"object"==typeof exports?t(exports):e.token=t}(this,function(e){});
more|mc alias list
more|useradd -p
more|flask run --port 5000
more|plink -ssh joe@h
more|use token bucket rate limiting
more|the password field2 is required
more|token Abc1 is not a word
more|keys: [a1, b2, c3]
more|secret santa 2024 list
more|password reset link v2 sent
more|pass 12 of 15 tests
more|auth flow OAuth2 PKCE
more|curl -k -u joe https://h
more|echo hello | docker build -
more|echo done | tee log.txt
more|cat file | docker login --password-stdin
more|mysql -u root -p
more|mysqldump -P3306 shop
more|login -p
more|ssh -p 22022 host login
more|docker run -p 127.0.0.1:5432:5432 postgres
more|zip -r a.zip dir -x '*.git*'
more|http GET example.org/a -p Hh
more|oracle:thin:@db:1521:orcl
more|user@host:/path/with/slash@2
more|IDENTIFIED BY ?
more|set -euo pipefail; token=$(get)
more|config set maxmemory 100mb
more|git config user.name "Joe Doe2"
more|key 1: value
more|Key 2: next step
more|auth 2024-01-02T03:04:05Z ok
more|secret Kubernetes-Dashboard-Token-5xk2p created
more|token ExpiredJwtException2 thrown
more|password PASSWORD_BCRYPT2
""".strip().splitlines()
